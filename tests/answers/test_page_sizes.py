"""Page sizes 1, 16 and 128 on a tiny model: the same greedy tokens, whole pages found again."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_models
from answers.equality import config, greedy
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine

NEW_TOKENS = 20
SIZES = (1, 16, 128)
PREFIX = 270  # two pages of 128 and a part of one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """A beginning that all share, then 1 to 61 tokens of their own."""
    ids = tiny_models.tiny_tokenizer().encode(" ".join(tiny_models.CORPUS) * 4).ids
    return [ids[:PREFIX] + ids[40 * n : 40 * n + 1 + 15 * n] for n in range(5)]


def answers(folder, prompts, backend: str, **changes) -> tuple[list[list[int]], list[int]]:
    """Tokens and cached tokens of each prompt, one after another."""
    found, cached = [], []
    with OfflineEngine(config(folder, backend=backend, dtype="float32", **changes)) as offline:
        for prompt in prompts:
            (completion,) = offline.generate([prompt], greedy(NEW_TOKENS))
            found.append(completion.token_ids)
            cached.append(completion.cached_tokens)
            assert offline.engine.scheduler.check() == []
        together = offline.generate(prompts, greedy(NEW_TOKENS))
        assert [completion.token_ids for completion in together] == found
    return found, cached


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_the_page_size_changes_no_token(folder, prompts, backend):
    wanted, none = answers(folder, prompts, backend, disable_radix_cache=True)
    assert len({tuple(tokens) for tokens in wanted}) > 1
    assert none == [0] * len(prompts)
    for size in SIZES:
        found, cached = answers(folder, prompts, backend, page_size=size)
        assert found == wanted, size
        assert cached[0] == 0
        assert all(count >= PREFIX // size * size for count in cached[1:])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_little_memory_changes_no_token(folder, prompts, backend, size):
    """Pages are evicted and requests retracted while the answers stay."""
    wanted, _ = answers(folder, prompts, backend, disable_radix_cache=True)
    asked = config(
        folder,
        backend=backend,
        dtype="float32",
        page_size=size,
        max_total_tokens=512,
        force_retract_every=5,
    )
    with OfflineEngine(asked) as offline:
        found = offline.generate(prompts, greedy(NEW_TOKENS))
        stats = offline.engine.stats()
        assert offline.engine.scheduler.check() == []
    assert [completion.token_ids for completion in found] == wanted
    assert stats.retractions > 0


def test_a_page_size_that_a_chip_lacks_is_refused_with_those_that_it_has(folder):
    with pytest.raises(StartError, match=r"--page-size 2: chip 'cpu' has page sizes 1, 16, 32"):
        OfflineEngine(config(folder, backend="cpu", page_size=2))
