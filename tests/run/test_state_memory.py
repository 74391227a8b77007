"""Memory of recurrent state: planned for, paid by pages, refused where it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny_models
from answers.equality import config
from anychip.bench.regress_case_files import package_cases
from anychip.contract.memory import MemoryInfo
from anychip.engine.build import build_engine
from anychip.engine.messages import StartError
from anychip.model.tiny_family import write_family
from anychip.run.memory_plan import (
    MemoryPlan,
    MemoryWishes,
    NotEnoughMemory,
    StepLimits,
    cache_limits,
    plan_memory,
)
from anychip.run.plan_run import Opened, open_run

MIB = 2**20
LIMITS = StepLimits(8, 128)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recurrent") / "model"
    return write_family(path, package_cases().settings("qwen3-next"))


@pytest.fixture
def opened(folder: Path):
    found = open_run(config(folder, backend="fake"))
    yield found
    found.close()


def share(opened: Opened, total: int, block: int | None = None, **wishes) -> MemoryPlan:
    info = MemoryInfo(total, 0, total, block or total, "test")
    wanted = MemoryWishes(**wishes)
    return plan_memory(opened.plan, info, MIB // 8, LIMITS, wanted, unified=False)


def test_a_slot_holds_what_the_recurrent_layers_keep(opened: Opened) -> None:
    states, settings = opened.plan.states, package_cases().settings("qwen3-next")
    heads, keys = settings["linear_num_value_heads"], settings["linear_key_head_dim"]
    values = settings["linear_value_head_dim"]
    inputs = 2 * settings["linear_num_key_heads"] * keys + heads * values
    assert states.layers == (0, 1, 2) and opened.plan.group.layers == 1
    assert states.slot_bytes == 3 * 4 * (heads * keys * values + 3 * inputs)


def test_slots_are_paid_for_before_pages(opened: Opened) -> None:
    plan = share(opened, 8 * MIB)
    slot = opened.plan.states.slot_bytes
    assert plan.snapshots == 2 * LIMITS.max_running
    assert plan.table()["recurrent state"] == (1 + 3 * LIMITS.max_running) * slot
    limits = cache_limits(opened.plan, plan, LIMITS, 64)
    assert limits.recurrent and limits.state_slots * slot == plan.states
    assert limits.snapshot_every % limits.page_size == 0
    without = share(opened, 8 * MIB, snapshots=False)
    assert without.snapshots == 0 and without.states == (1 + LIMITS.max_running) * slot


def test_snapshots_take_a_quarter_of_what_is_left_at_most(opened: Opened) -> None:
    slot = opened.plan.states.slot_bytes
    tight = opened.plan.weight_bytes + MIB // 8 + 20 * slot
    plan = share(opened, int(tight / 0.85), context_asked=False)
    assert 0 < plan.snapshots <= (20 - 1 - LIMITS.max_running) // 4 + 1


def test_a_block_holds_no_more_slots_than_fit(opened: Opened) -> None:
    part = opened.plan.states.largest_part
    plan = share(opened, 8 * MIB, block=12 * part)
    assert plan.snapshots == 12 - 1 - LIMITS.max_running


def test_no_room_for_running_requests_is_told_with_the_way_out(opened: Opened) -> None:
    slot = opened.plan.states.slot_bytes
    tight = opened.plan.weight_bytes + MIB // 8 + 5 * slot
    with pytest.raises(NotEnoughMemory, match=r"state of 8 requests.*--max-running-requests"):
        share(opened, int(tight / 0.85))


def test_other_models_have_no_such_line(opened: Opened) -> None:
    plain = replace(opened.plan, states=None)
    info = MemoryInfo(8 * MIB, 0, 8 * MIB, 8 * MIB, "test")
    plan = plan_memory(plain, info, MIB // 8, LIMITS, MemoryWishes(), unified=False)
    assert "recurrent state" not in plan.table() and plan.snapshots == 0


def test_host_memory_for_pages_is_refused(folder: Path) -> None:
    tiny_models.write_tokenizer(folder)
    asked = config(folder, backend="fake", enable_hierarchical_cache=True)
    with pytest.raises(StartError, match="keeps recurrent state"):
        build_engine(asked, lambda line: None)
