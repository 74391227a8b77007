"""Rules that the operators of all libraries share, held by one operator of each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_llm_card import ABSENT, INVALID_PARAM, Card, Pair, made, started_card, values

HUGE = 1 << 60
"""Times what it is multiplied with in each call, this is no number of 64 bits."""

Q, ROW, CACHE = values("float", 2, 6 * 32), values("float", 2, 16), made("float", 4, 2, 8, 32)
TABLE, LENGTHS, ROWS = np.zeros((2, 3), np.int32), Pair([5, 6]), Pair([0, 1])
SLOTS = made("float", 4, 2, 8, 8)
PAGED = [2, 4, 2, 2, 6, 2, 32, 0, 0, -1, 8, 3, 2, 0, 2]

CALLS: dict[str, tuple[str, list[Any], list[int], list[float], int]] = {
    "xpuapi, product": (
        "product",
        [ROW, ROW, made("float", 2, 2), None, None, None, None],
        [0, 0, 0, 2, 2, 16, 16, 16, 2, 0, 1, 0],
        [1.0, 0.0],
        7,
    ),
    "xpuapi, norm": ("norm", [ROW, made("float", 2, 16), ROW, None], [0, 1, 2, 16, 0], [1e-5], 2),
    "xpuapi, gate": ("gate", [ROW, made("float", 2, 8)], [0, 2, 16, 1, 1], [], 1),
    "xpuapi, rotation": (
        "rotate",
        [ROW, None, ROW, ROW, made("float", 2, 16), None],
        [0, 0, 1, 2, 1, 1, 16, 16],
        [],
        2,
    ),
    "xpu_blas": (
        "batch",
        [ROW, ROW, made("float", 2, 1)],
        [1, 0, 0, 2, 1, 1, 16, 16, 16, 1, 0, 1],
        [1.0, 0.0],
        3,
    ),
    "xpu_flash_attention": (
        "speculative",
        [Q, CACHE, CACHE, made("float", *Q.shape), TABLE, LENGTHS, ROWS],
        [2, 2, 2, 1, 6, 32, 2, 8, 3, -1],
        [0.2],
        3,
    ),
    "apiinfer": (
        "cache_by_slot",
        [ROW, ROW, SLOTS, SLOTS, np.array([1, 2], np.int32)],
        [0, 2, 2, 8, 4, 8],
        [],
        1,
    ),
    "xft_blocks": (
        "decoder_attention",
        [Q, CACHE, CACHE, made("float", *Q.shape), TABLE, LENGTHS, ABSENT, ROWS],
        [0, 0, *PAGED],
        [],
        12,
    ),
}
"""Driver, pointers, numbers, floats, and which of the numbers may not be huge."""


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


@pytest.mark.parametrize("of", CALLS)
def test_a_context_of_another_card_has_not_the_default_queue(card: Card, of: str) -> None:
    *call, _ = CALLS[of]
    for context, status in ((0, 0), (1, INVALID_PARAM)):
        answer = card.call(*call, context=context)
        assert (answer.status, answer.waited) == (status, 0)


@pytest.mark.parametrize("of", CALLS)
def test_sizes_whose_product_is_no_number_are_refused(card: Card, of: str) -> None:
    name, pointers, numbers, floats, index = CALLS[of]
    huge = [HUGE if i == index else number for i, number in enumerate(numbers)]
    answer = card.call(name, pointers, huge, floats)
    assert (answer.status, answer.waited) == (INVALID_PARAM, 0)


@pytest.mark.parametrize("of", sorted(set(CALLS) - {"xft_blocks"}))
def test_no_context_is_refused(card: Card, of: str) -> None:
    """An XFTContext is asked for its queue by others too: it wants a context from the start."""
    *call, _ = CALLS[of]
    assert card.call(*call, context=None).status == INVALID_PARAM


def test_the_broken_rule_is_said_where_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    name, pointers, numbers, floats, _ = CALLS["apiinfer"]
    with started_card(tmp_path, XPUAPI_DEBUG="1") as card:
        card.call(name, [None, *pointers[1:]], numbers, floats)
    assert "infer_ops::store_paged_kv_cache: null: k" in capfd.readouterr().err
