"""Sharing out the memory, before any weight is read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import tiny_models
from answers.equality import Oracle, config, greedy
from anychip.contract.memory import MemoryInfo
from anychip.engine.build import build_engine
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine
from anychip.engine.tables import memory_table
from anychip.ops.arena import plan_arena
from anychip.run.masks import mask_words
from anychip.run.memory_plan import (
    MemoryPlan,
    MemoryWishes,
    NotEnoughMemory,
    StepLimits,
    most_entries,
    plan_memory,
    workspace_bytes,
)
from anychip.run.model_plan import trace_step
from anychip.run.plan_run import Opened, open_run
from anychip.run.sizes import Choice, Sizes, entry_room

LIMITS = StepLimits(8, 128)
MIB = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def opened(folder: Path):
    found = open_run(config(folder, backend="fake"))
    yield found
    found.close()


def share(
    opened: Opened, total: int, used: int = 0, *, unified: bool = False, **wishes
) -> MemoryPlan:
    info = MemoryInfo(total, used, total - used, total - used, "test")
    return plan_memory(opened.plan, info, MIB, LIMITS, MemoryWishes(**wishes), unified=unified)


def test_headroom_stays_free(opened: Opened) -> None:
    plan = share(opened, 4 * MIB)
    spent = sum(n for name, n in plan.table().items() if name != "total")
    assert plan.headroom == 4 * MIB - int(4 * MIB * 0.85)
    assert 4 * MIB - plan.page_bytes < spent <= 4 * MIB


def test_a_layer_has_no_more_pages_than_fit_into_the_largest_block(opened: Opened) -> None:
    free, block = share(opened, 4 * MIB), 64 * 1024
    info = MemoryInfo(4 * MIB, 0, 4 * MIB, block, "test")
    bounded = plan_memory(opened.plan, info, MIB, LIMITS, MemoryWishes(), unified=False)
    assert 0 < bounded.pages < free.pages
    group = opened.plan.group
    assert (bounded.pages + 1) * group.layer_page_bytes <= block
    assert (bounded.pages + 2) * group.layer_page_bytes > block
    said = "more pages fit into no block: the device's largest is 0.1 MiB"
    assert said in memory_table(bounded, opened.plan)
    assert "no block" not in memory_table(free, opened.plan)
    info = MemoryInfo(4 * MIB, 0, 4 * MIB, 0, "test")
    with pytest.raises(NotEnoughMemory, match="largest block 0 MiB"):
        plan_memory(opened.plan, info, MIB, LIMITS, MemoryWishes(), unified=False)


def test_unified_memory_is_left_to_others_unless_asked(opened: Opened) -> None:
    alone, shared = share(opened, 4 * MIB), share(opened, 4 * MIB, unified=True)
    asked = share(opened, 4 * MIB, unified=True, fraction=0.85)
    assert abs(shared.pages - alone.pages // 2) <= 1
    assert asked.pages == alone.pages


def test_pages_are_bounded_by_use_and_wish(opened: Opened) -> None:
    assert share(opened, 2**40).pages == LIMITS.max_running * opened.plan.most_pages
    assert share(opened, 2**40, max_total_tokens=100).pages == 7
    assert share(opened, 2**40, max_total_tokens=100).longest == 112


def test_one_sequence_that_does_not_fit_is_refused_with_numbers(opened: Opened) -> None:
    with pytest.raises(NotEnoughMemory, match=r"512 tokens.*--mem-fraction-static"):
        share(opened, 3 * MIB, used=MIB, context_asked=True)
    assert share(opened, 3 * MIB, used=MIB).longest < 512
    with pytest.raises(NotEnoughMemory, match="weights and workspace need 1 MiB"):
        share(opened, MIB)


@pytest.mark.parametrize("unified", [False, True])
def test_total_that_would_be_enough_is_enough(opened: Opened, unified: bool) -> None:
    with pytest.raises(NotEnoughMemory, match=r"A total of \d+ MiB .*for 32 tokens") as refused:
        share(opened, MIB, used=MIB // 4, unified=unified)
    told = int(str(refused.value).split("A total of ")[1].split()[0])
    share(opened, told * MIB, used=MIB // 4, unified=unified)
    with pytest.raises(NotEnoughMemory):
        share(opened, (told - 1) * MIB, used=MIB // 4, unified=unified)


def test_start_is_refused_before_weights_are_read(folder: Path) -> None:
    lines: list[str] = []
    small = {"max_running_requests": 2, "chunked_prefill_size": 16, "context_length": 512}
    asked = config(folder, backend="fake", chip_option={"memory": "800K"}, **small)
    with pytest.raises(StartError, match="not enough memory for one sequence of 512 tokens"):
        build_engine(asked, lines.append)
    assert not any("loading" in line for line in lines)


def draw_choice(draw: random.Random, opened: Opened) -> Choice:
    """Any way to choose tokens that a step may have."""
    entries, words = draw.choice([0, 300, 5000]), mask_words(opened.plan.config.vocab_size)
    return Choice(
        greedy=draw.random() < 0.5,
        entries=entry_room(min(entries, most_entries(opened.plan, opened.limits))),
        mask_words=draw.choice([0, words]),
        top=draw.choice([-1, 0, 5, 20]),
    )


@pytest.mark.parametrize("primitives", ["false", "true"])
def test_every_step_fits_the_planned_scratch(folder: Path, primitives: str) -> None:
    asked = config(folder, backend="fake", chip_option={"primitives_only": primitives})
    opened = open_run(asked)
    planned, _ = workspace_bytes(opened.plan, LIMITS, opened.decider)
    for tokens in (1, 2, 7, 8, 31, 100, 128):
        for rows in {1, min(tokens, 3), min(tokens, 8)}:
            for pages in (8, 32):
                choice = draw_choice(random.Random(tokens), opened)
                sizes = Sizes(tokens, rows, rows, pages, choice)
                program = trace_step(opened.plan, sizes, 2, opened.decider)
                assert plan_arena(program).nbytes <= planned, sizes
    opened.close()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_step_of_the_demo_model_fits(demo_model: Path, dtype: str) -> None:
    """A large vocabulary and many rows: sizes between the corners need no more than they do."""
    opened = open_run(config(demo_model, dtype=dtype, max_running_requests=64))
    planned, _ = workspace_bytes(opened.plan, opened.limits, opened.decider)
    draw = random.Random(7)
    for _ in range(40):
        tokens = draw.choice([draw.randint(1, 130), draw.randint(64, opened.limits.step_tokens)])
        rows = draw.randint(1, min(64, tokens))
        logit_rows = draw.randint(0, rows + 32)
        sizes = Sizes(tokens, rows, logit_rows, 64, draw_choice(draw, opened))
        program = trace_step(opened.plan, sizes, 2, opened.decider)
        assert plan_arena(program).nbytes <= planned, sizes
    opened.close()


def test_scratch_that_was_planned_too_small_grows_and_is_told(folder, monkeypatch, caplog) -> None:
    monkeypatch.setattr("anychip.engine.build.workspace_of", lambda *given: (64, 4096))
    with OfflineEngine(config(folder, backend="fake")) as offline:
        (found,) = offline.generate([[5, 6, 7]], greedy(4))
    assert found.token_ids == Oracle(tiny_models.make_hf_model()).answer([5, 6, 7], 4)
    assert "bytes of scratch, 64 were planned" in caplog.text
