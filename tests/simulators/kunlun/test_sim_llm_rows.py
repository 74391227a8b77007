"""Norms, gates, rotation, quantization and cache writes of the simulated libraries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sim_llm_card import (
    ABSENT,
    BOUND,
    DTYPES,
    INVALID_PARAM,
    KEXCEPTION,
    NOT_IMPLEMENT,
    TYPES,
    Answer,
    Card,
    Pair,
    error,
    exact,
    made,
    started_card,
    values,
)

EPS = 1e-5


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Card]:
    with started_card(tmp_path_factory.mktemp("card")) as card:
        yield card


def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + EPS) * weight


@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_rms_norm(card: Card, kind: str, wide: int) -> None:
    x, weight = values(kind, 5, 83), values("float" if wide else kind, 83, seed=1)
    numbers = [TYPES[kind], wide, 5, 83]
    var = np.zeros(5, np.float32)
    answer = card.call("norm", [x, made(kind, 5, 83), weight, var], [*numbers, 1], [EPS])
    assert error(answer.at(1), normed(exact(x), exact(weight))) < BOUND[kind]
    means = np.mean(exact(x) ** 2, axis=1)
    assert np.allclose(answer.at(3), 1 / np.sqrt(means + EPS), rtol=1e-6)
    plain = card.call("norm", [x, made(kind, 5, 83), weight, var], [*numbers, 0], [EPS])
    assert np.allclose(plain.at(3), means, rtol=1e-6)
    assert card.call("norm", [x, x, None, None], [*numbers, 0], [EPS]).status == INVALID_PARAM


@pytest.mark.parametrize("of_infer", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_norm_of_the_rounded_sum(card: Card, kind: str, of_infer: int) -> None:
    x, residual = values(kind, 4, 64), values(kind, 4, 64, seed=1)
    weight = values(kind if of_infer else "float", 64, seed=2)
    arrays = [x, residual, made(kind, 4, 64), made(kind, 4, 64), weight]
    answer = card.call("add_norm", arrays, [TYPES[kind], of_infer, 4, 64], [EPS])
    total = (exact(x) + exact(residual)).astype(np.float32).astype(DTYPES[kind])
    assert np.array_equal(answer.at(3), total)
    assert error(answer.at(2), normed(exact(total), exact(weight))) < BOUND[kind]


def test_only_the_fused_norm_of_xdnn_goes_without_the_sum(card: Card) -> None:
    x = values("float", 2, 16)
    arrays = [x, x, made("float", 2, 16), None, values("float", 16)]
    assert card.call("add_norm", arrays, [0, 0, 2, 16], [EPS]).status == 0
    assert card.call("add_norm", arrays, [0, 1, 2, 16], [EPS]).status == INVALID_PARAM


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("kind", TYPES)
def test_turn_says_which_half_is_gated(card: Card, kind: str) -> None:
    x = values(kind, 3, 48)
    a, b = exact(x[:, :24]), exact(x[:, 24:])
    for turn, wanted in ((1, silu(a) * b), (0, a * silu(b))):
        found = card.call("gate", [x, made(kind, 3, 24)], [TYPES[kind], 3, 48, 1, turn]).at(1)
        assert error(found, wanted) < BOUND[kind]


@pytest.mark.parametrize(("kind", "good", "bad"), [("float", 12, 14), ("bfloat16", 24, 20)])
def test_gated_rows_are_multiples_of_16_bytes(card: Card, kind: str, good: int, bad: int) -> None:
    for row, status in ((good, 0), (bad, INVALID_PARAM)):
        arrays = [values(kind, 2, row), made(kind, 2, row // 2)]
        assert card.call("gate", arrays, [TYPES[kind], 2, row, 1, 1]).status == status
    arrays = [values(kind, 2, good), made(kind, 2, good // 2)]
    assert card.call("gate", arrays, [TYPES[kind], 2, good, 0, 1]).status == INVALID_PARAM


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_quantization_answers_maxima(card: Card, kind: str) -> None:
    x = values(kind, 4, 50)
    x[3] = 0
    arrays = [x, np.full((4, 50), 99, np.int8), np.zeros(4, np.float32)]
    answer = card.call("quantize", arrays, [TYPES[kind], 4, 50])
    maxima = np.abs(exact(x)).max(axis=1)
    assert np.array_equal(answer.at(2), maxima) and (answer.at(1)[3] == 0).all()
    back = answer.at(1) * maxima[:, None] / 127
    assert np.abs(back - exact(x)).max() <= maxima.max() / 127 * 0.51


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, neox: bool) -> np.ndarray:
    """x [tokens, heads, dim] by cos and sin [tokens, width], an entry an element."""
    out, width = x.copy(), cos.shape[-1]
    first = slice(0, width // 2) if neox else slice(0, width, 2)
    second = slice(width // 2, width) if neox else slice(1, width, 2)
    c, s = cos[:, None], sin[:, None]
    out[..., first] = x[..., first] * c[..., first] - x[..., second] * s[..., first]
    out[..., second] = x[..., second] * c[..., second] + x[..., first] * s[..., second]
    return out


HALF, NEIGHBOURS, OWN_TYPE, ALONE = 0, 1, 2, 3


def rotate(card: Card, kind: str, which: int, width: int = 16, heads: int = 4) -> Answer:
    q, k = values(kind, 6, heads, 16), values(kind, 6, 2, 16, seed=1)
    angles = kind if which in (OWN_TYPE, ALONE) else "float"
    sin, cos = values(angles, 6, width, seed=2), values(angles, 6, width, seed=3)
    arrays = [q, k, sin, cos, made(kind, *q.shape), made(kind, *k.shape)]
    return card.call("rotate", arrays, [TYPES[kind], which, 2, 3, heads, 2, 16, width])


@pytest.mark.parametrize("which", [HALF, NEIGHBOURS, OWN_TYPE])
@pytest.mark.parametrize("kind", TYPES)
def test_rotation_by_rows(card: Card, kind: str, which: int) -> None:
    answer = rotate(card, kind, which)
    q, k, sin, cos = (exact(answer.at(i)) for i in range(4))
    for found, x in ((answer.at(4), q), (answer.at(5), k)):
        assert error(found, rotated(x, cos, sin, which != NEIGHBOURS)) < BOUND[kind]
        assert error(found, rotated(x, cos, sin, which == NEIGHBOURS)) > 0.1


@pytest.mark.parametrize("kind", TYPES)
def test_rotation_of_one_tensor_alone(card: Card, kind: str) -> None:
    answer = rotate(card, kind, ALONE)
    q, sin, cos = (exact(answer.at(i)) for i in (0, 2, 3))
    assert error(answer.at(4), rotated(q, cos, sin, True)) < BOUND[kind]
    assert np.array_equal(answer.at(5), made(kind, 6, 2, 16)), "nobody asked for k"


def test_a_rotation_is_refused_under_its_own_name(
    tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    with started_card(tmp_path, XPUAPI_DEBUG="1") as card:
        for which in (OWN_TYPE, ALONE):
            assert rotate(card, "float", which, width=15).status == INVALID_PARAM
    names = ["rotary_no_freqs_qk_embedding_v2", "rotary_no_freqs_embedding_v2"]
    said = capfd.readouterr().err
    assert [said.count(f"api::{name}: an odd width") for name in names] == [1, 1]


def test_halves_turn_in_part_and_neighbours_do_not(card: Card) -> None:
    """As measured on the vendor's library in public."""
    answer = rotate(card, "float", HALF, width=8)
    q, sin, cos = (exact(answer.at(i)) for i in (0, 2, 3))
    assert error(answer.at(4), rotated(q, cos, sin, True)) < 2e-6
    assert np.array_equal(answer.at(4)[..., 8:], answer.at(0)[..., 8:])
    assert rotate(card, "float", NEIGHBOURS, width=8).status == INVALID_PARAM


def table_of(length: int, width: int) -> np.ndarray:
    """Cosines of all positions, then sines."""
    return values("float", 2, length, width, seed=4)


def full(table: np.ndarray, positions: list[int], dim: int, neox: bool) -> list[np.ndarray]:
    rows = [exact(table[plane, positions]) for plane in (0, 1)]
    if table.shape[-1] == dim:
        return rows
    return [np.tile(r, 2) if neox else np.repeat(r, 2, axis=1) for r in rows]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("neox", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_rotation_of_a_ragged_batch(card: Card, kind: str, neox: bool, half: bool) -> None:
    q, k = values(kind, 5, 4, 16), values(kind, 5, 2, 16, seed=1)
    table = table_of(9, 8 if half else 16)
    arrays = [q, k, table, made(kind, *q.shape), made(kind, *k.shape)]
    numbers = [TYPES[kind], int(neox), 3, 2, 9, 4, 2, 16]
    name = "HALF_HEAD_DIM" if half else "NORMAL"
    answer = card.call(
        "rotate_ragged", [*arrays, Pair([0, 3, 5]), Pair([6, 2])], numbers, (), [name]
    )
    cos, sin = full(table, [6, 7, 8, 2, 3], 16, neox)
    assert error(answer.at(3), rotated(exact(q), cos, sin, neox)) < BOUND[kind]
    assert error(answer.at(4), rotated(exact(k), cos, sin, neox)) < BOUND[kind]


RAGGED: dict[str, tuple[Pair, Pair, str, int]] = {
    "a position beyond the table": (Pair([0, 3]), Pair([7]), "NORMAL", INVALID_PARAM),
    "offsets that fall": (Pair([0, -1]), Pair([0]), "NORMAL", INVALID_PARAM),
    "an unknown name": (Pair([0, 3]), Pair([0]), "NORMAI", INVALID_PARAM),
    "no host half": (Pair(None, [0, 3]), Pair([0]), "NORMAL", INVALID_PARAM),
    "no device half": (Pair([0, 3], both=False), Pair([0], both=False), "NORMAL", 0),
    "no offsets": (Pair([0, 3]), ABSENT, "NORMAL", 0),
}


@pytest.mark.parametrize("what", RAGGED)
def test_rules_of_ragged_batches(card: Card, what: str) -> None:
    lod, offsets, name, status = RAGGED[what]
    x = values("float", 3, 2, 16)
    arrays = [x, x, table_of(9, 16), made("float", 3, 2, 16), made("float", 3, 2, 16), lod, offsets]
    length = len(lod) or 2
    numbers = [0, 1, length, len(offsets), 9, 2, 2, 16]
    assert card.call("rotate_ragged", arrays, numbers, (), [name]).status == status


def test_halves_of_a_pair_that_differ_are_a_kernel_exception(tmp_path: Path) -> None:
    with started_card(tmp_path) as card:
        x = values("float", 3, 2, 16)
        out = made("float", 3, 2, 16)
        pairs = [Pair([0, 3], [0, 2]), Pair([0])]
        arrays = [x, x, table_of(9, 16), out, out, *pairs]
        answer = card.call("rotate_ragged", arrays, [0, 1, 2, 1, 9, 2, 2, 16], (), ["NORMAL"])
        assert (answer.status, answer.waited) == (0, KEXCEPTION)


@pytest.mark.parametrize("kind", TYPES)
def test_slots(card: Card, kind: str) -> None:
    """Scattered slots: with one KV head, pages by head and pages by token look alike."""
    k, v = values(kind, 4, 3, 8), values(kind, 4, 3, 8, seed=1)
    slots = np.array([13, -1, 2, 31], np.int32)
    arrays = [k, v, made(kind, 4, 3, 8, 8), made(kind, 4, 3, 8, 8), slots]
    answer = card.call("cache_by_slot", arrays, [TYPES[kind], 4, 3, 8, 4, 8])
    for found, x in ((answer.at(2), k), (answer.at(3), v)):
        wanted = made(kind, 4, 3, 8, 8)
        for token in (0, 2, 3):
            wanted[slots[token] // 8, :, slots[token] % 8] = x[token]
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("slot", [32, -2])
def test_a_slot_outside_the_cache_is_a_kernel_exception(tmp_path: Path, slot: int) -> None:
    with started_card(tmp_path) as card:
        x, cache = values("float", 1, 3, 8), made("float", 4, 3, 8, 8)
        arrays = [x, x, cache, cache, np.array([slot], np.int32)]
        answer = card.call("cache_by_slot", arrays, [0, 1, 3, 8, 4, 8])
        assert (answer.status, answer.waited) == (0, KEXCEPTION)


TABLE = np.array([[5, 1, -1], [4, 0, 2]], np.int32)
"""Pages of two sequences, out of order and with a hole that nobody uses."""


def paged(cache: np.ndarray, row: int, positions: list[int], x: np.ndarray) -> None:
    for token, position in zip(x, positions, strict=True):
        cache[TABLE[row, position // 8], :, position % 8] = token


@pytest.mark.parametrize("kind", TYPES)
def test_writing_by_sequence(card: Card, kind: str) -> None:
    x, cache = values(kind, 7, 3, 8), made(kind, 6, 3, 8, 8)
    pairs = [Pair([0, 4, 7]), Pair([6, 0]), Pair([0, 1])]
    numbers = [TYPES[kind], 3, 2, 2, 2, 3, 8, 2, 8, 3]
    found = card.call("cache_by_sequence", [x, cache, TABLE, *pairs], numbers).at(1)
    wanted = made(kind, 6, 3, 8, 8)
    paged(wanted, 0, [6, 7, 8, 9], x[:4])
    paged(wanted, 1, [0, 1, 2], x[4:])
    assert np.array_equal(found, wanted)


def test_a_position_without_a_page_is_a_kernel_exception(tmp_path: Path) -> None:
    with started_card(tmp_path) as card:
        x, cache = values("float", 4, 3, 8), made("float", 6, 3, 8, 8)
        pairs = [Pair([0, 4]), Pair([14]), Pair([0])]
        answer = card.call(
            "cache_by_sequence", [x, cache, TABLE, *pairs], [0, 2, 1, 1, 1, 3, 8, 2, 8, 3]
        )
        assert (answer.status, answer.waited) == (0, KEXCEPTION)


def split_call(
    card: Card, kind: str, decoder: int, neox: int, *pairs: Pair, **given: Any
) -> Answer:
    """Two sequences, 4 heads and 2 KV heads of 16, pages of 8 tokens."""
    tokens = 2 if decoder else 7
    qkv = values(kind, tokens, 8 * 16)
    parts = [made(kind, tokens, n * 16) for n in (4, 2, 2)]
    caches = [made(kind, 6, 2, 8, 16) for _ in range(2)]
    arrays = [qkv, table_of(24, 16), TABLE, *parts, *caches, *pairs]
    lengths = [len(pair) for pair in pairs]
    numbers = [TYPES[kind], decoder, neox, *lengths, 2, 24, 4, 2, 16, 2, 8, 3]
    return card.call("split_rotate_cache", arrays, numbers, (), [given.get("name", "NORMAL")])


@pytest.mark.parametrize("neox", [0, 1])
@pytest.mark.parametrize("decoder", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_split_rotate_and_cache(card: Card, kind: str, decoder: int, neox: int) -> None:
    if decoder:
        pairs, positions = (Pair([9, 3]), Pair([1, 0]), ABSENT), [[8], [2]]
    else:
        starts = ABSENT if neox else Pair([5, 0])
        pairs = (Pair([0, 4, 7]), Pair([1, 0]), starts)
        positions = [[0, 1, 2, 3] if neox else [5, 6, 7, 8], [0, 1, 2]]
    answer = split_call(card, kind, decoder, neox, *pairs)
    qkv, table = exact(answer.at(0)), answer.at(1)
    cos, sin = full(table, [p for part in positions for p in part], 16, bool(neox))
    heads = qkv.reshape(len(qkv), 8, 16)
    q, k = (rotated(heads[:, part], cos, sin, bool(neox)) for part in (slice(0, 4), slice(4, 6)))
    assert error(answer.at(3), q.reshape(len(qkv), -1)) < BOUND[kind]
    assert error(answer.at(4), k.reshape(len(qkv), -1)) < BOUND[kind]
    assert np.array_equal(exact(answer.at(5)), qkv[:, 6 * 16 :])
    for found, part in ((answer.at(6), answer.at(4)), (answer.at(7), answer.at(5))):
        wanted, first = made(kind, 6, 2, 8, 16), 0
        for row, here in zip((1, 0), positions, strict=True):
            tokens = part[first : first + len(here)].reshape(len(here), 2, 16)
            paged(wanted, row, here, tokens)
            first += len(here)
        assert np.array_equal(found, wanted)


def test_rules_of_split_rotate_and_cache(card: Card) -> None:
    lod, rows, starts = Pair([0, 4, 7]), Pair([1, 0]), Pair([5, 0])
    assert split_call(card, "float", 0, 0, lod, rows, Pair([21, 0])).status == INVALID_PARAM
    assert split_call(card, "float", 0, 0, lod, Pair([1, 2]), starts).status == INVALID_PARAM
    assert split_call(card, "float", 0, 0, lod, Pair([1]), starts).status == INVALID_PARAM
    assert split_call(card, "float", 1, 0, Pair([0, 3]), rows, ABSENT).status == INVALID_PARAM
    bad_name = split_call(card, "float", 0, 0, lod, rows, starts, name="ROPE")
    assert bad_name.status == INVALID_PARAM and bad_name.status != NOT_IMPLEMENT
