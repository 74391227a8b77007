"""A tiny model whose evicted pages go to host memory and come back: the same greedy tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_models
from answers.equality import config, greedy
from anychip.contract.host import HostFacts
from anychip.contract.memory import MemoryInfo
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine
from anychip.run.host_pages import planned_slots
from anychip.run.memory_plan import MemoryPlan, NotEnoughMemory

NEW_TOKENS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Four of 200 tokens that share nothing: two fill the cache."""
    ids = tiny_models.tiny_tokenizer().encode(" ".join(tiny_models.CORPUS) * 9).ids
    return [[7 + n, *ids[31 * n : 31 * n + 199]] for n in range(4)]


def answers(folder, prompts, **changes):
    """Tokens of each prompt, asked one after another and twice; the scheduler's counts."""
    asked = config(
        folder, backend="fake", dtype="float32", max_total_tokens=512, context_length=512, **changes
    )
    with OfflineEngine(asked) as offline:
        found = [
            offline.generate([prompt], greedy(NEW_TOKENS))[0].token_ids
            for prompt in [*prompts, *prompts]
        ]
        assert offline.engine.scheduler.check() == []
        return found, offline.engine.stats()


@pytest.fixture(scope="module")
def without(folder, prompts):
    return answers(folder, prompts)


@pytest.mark.parametrize("size", [1, 16, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pages_that_went_and_came_back_give_the_same_tokens(folder, prompts, without, size, dtype):
    wanted, plain = without
    if dtype != "float32":
        wanted, _ = answers(folder, prompts, page_size=size, kv_cache_dtype=dtype)
    found, stats = answers(
        folder, prompts, page_size=size, kv_cache_dtype=dtype, enable_hierarchical_cache=True
    )
    assert found == wanted
    assert plain.cached_tokens == 0
    assert stats.cached_tokens_host > 0
    assert stats.cached_tokens == 4 * (199 // size * size)
    assert stats.host_slots_total == 2 * stats.pages_total


def test_what_host_memory_has_no_room_for_is_computed_again(folder, prompts, without):
    found, stats = answers(
        folder, prompts, enable_hierarchical_cache=True, hicache_ratio=0.1, page_size=16
    )
    assert found == without[0]
    assert stats.host_slots_total == 3
    assert stats.host_saved_pages > stats.host_loaded_pages


def test_a_chip_that_computes_in_host_memory_is_refused(folder):
    with pytest.raises(StartError, match=r"chip 'cpu' computes in host memory.*--max-total-tokens"):
        OfflineEngine(config(folder, backend="cpu", enable_hierarchical_cache=True))


PLAN = MemoryPlan(MemoryInfo(10**9, 0, 10**9, 10**9, "made up"), 0, 0, 10**6, 100, 10**6, 0, 1600)
HOST = HostFacts(2 * 10**9, 10**9, "MemTotal")


def test_slots_follow_the_ratio_or_the_size():
    assert planned_slots(PLAN, None, 0, HOST) == 200
    assert planned_slots(PLAN, 0.5, 0, HOST) == 50
    assert planned_slots(PLAN, None, 3, HostFacts(10**10, 10**10, "MemTotal")) == 3000


@pytest.mark.parametrize(
    ("ratio", "size", "text"),
    [
        (9.0, 0, "--hicache-ratio 9 is 858 MiB of host memory; 954 MiB are available .* 80%"),
        (None, 1, "--hicache-size 1 is 954 MiB .* ask for 8 times the cache or less"),
        (0.001, 0, "--hicache-ratio 0.001 has room for no page of 1,000,000 bytes"),
    ],
)
def test_host_memory_that_is_not_there_is_refused(ratio, size, text):
    with pytest.raises(NotEnoughMemory, match=text):
        planned_slots(PLAN, ratio, size, HOST)
