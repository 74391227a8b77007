"""From a configuration to a running engine, telling at each stage what was found and decided."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anychip.config import ServeConfig
from anychip.contract.errors import ChipError, ContractError
from anychip.contract.host import host_facts
from anychip.contract.registration import chip_slots, probe_chip, read_options
from anychip.contract.version import CONTRACT, dotted
from anychip.engine.device_watch import DeviceWatch
from anychip.engine.engine import Engine
from anychip.engine.grammars import EngineGrammars
from anychip.engine.loading import loading_progress
from anychip.engine.messages import EngineInfo, StartError
from anychip.engine.tables import memory_table, operator_table, weight_table
from anychip.figures import MOST_COMMITTED, committed_share
from anychip.grammar.backend import backend_complaint
from anychip.model.errors import CheckpointError
from anychip.ops.decide import MissingOperator, UnknownImplementation
from anychip.ops.record import Recorder
from anychip.plan import CacheLimits
from anychip.run.choosing import Shapes
from anychip.run.host_pages import planned_slots
from anychip.run.memory_plan import (
    MemoryPlan,
    MemoryWishes,
    NotEnoughMemory,
    cache_limits,
    plan_memory,
    workspace_of,
)
from anychip.run.plan_run import Opened, chip_options, open_run
from anychip.run.runner import Runner
from anychip.run.timed_run import TimedSteps
from anychip.run.weight_plan import ModelPlanError
from anychip.run.weights import load_weights
from anychip.schedule.hooks import SchedulerHooks
from anychip.schedule.scheduler import Scheduler, SchedulerOptions
from anychip.text.eos import eos_ids_in, read_eos_ids

if TYPE_CHECKING:
    from anychip.run.check import StepChecker

Report = Callable[[str], None]
log = logging.getLogger("anychip.engine")

REFUSALS = (
    CheckpointError,
    ChipError,
    ContractError,
    MissingOperator,
    ModelPlanError,
    NotEnoughMemory,
    UnknownImplementation,
)
"""What a user can mend: told without a traceback."""


def build_served_engine(config: ServeConfig, report: Report) -> tuple[Engine, EngineInfo]:
    """Build an engine for a loop in `Engine.serve`. Raises StartError as `build_engine` does."""
    return build_engine(config, report, overlap=not config.disable_overlap_schedule, watched=True)


def build_engine(
    config: ServeConfig, report: Report, *, overlap: bool = False, watched: bool = False
) -> tuple[Engine, EngineInfo]:
    """Open, check, plan, load. report: takes the lines of the start-up log.

    overlap: `Engine.step` is called in `Engine.serve` alone. watched: somebody wants to know how
    the device does and what operators take.
    Raises StartError with a text for the user; nothing stays open then.
    """
    complaint = backend_complaint(config.grammar_backend)
    if complaint is not None:
        raise StartError(f"--grammar-backend: {complaint}")
    try:
        opened = open_run(config)
    except REFUSALS as error:
        raise StartError(str(error)) from error
    try:
        engine, info = _start(config, opened, report, overlap)
        if watched:
            _watch(config, opened, engine, info)
        return engine, info
    except BaseException as error:
        opened.close()
        if isinstance(error, REFUSALS):
            raise StartError(str(error)) from error
        raise


def _start(
    config: ServeConfig, opened: Opened, report: Report, overlap: bool
) -> tuple[Engine, EngineInfo]:
    eos_ids = _eos_ids(config, opened)
    _report_chip(config, opened, report)
    recorder, programs = opened.recorded()
    report(operator_table(recorder.served(), why=log.isEnabledFor(logging.DEBUG)))
    if recorder.errors:
        raise StartError(_missing(opened, recorder))
    if opened.composed_attention:
        report(
            f"attention is composed, which is slow and grows with rows and context: "
            f"{opened.limits.max_running} requests at once, chunks of {opened.chunk} tokens"
        )
    arena, staging = workspace_of(opened.plan, opened.limits, programs)
    memory = planned_memory(config, opened, arena + staging)
    report(memory_table(memory, opened.plan))
    limits = cache_limits(opened.plan, memory, opened.limits, min(opened.chunk, memory.longest))
    host_slots = _host_slots(config, opened, memory, report)
    limits = msgspec.structs.replace(limits, host_slots=host_slots)
    weights = load_weights(
        opened.checkpoint, opened.plan, opened.chip, loading_progress(opened, report)
    )
    runner = Runner(opened.chip, opened.plan, weights, limits, arena=arena, decide=opened.decider)
    if config.check_ops:
        from anychip.engine.checking import SLOW, step_checker  # much, and for this alone

        report(SLOW)
        runner.checker = step_checker(
            opened, config.check_ops_path, config.device_index, config.chip_option
        )
    grammars = _grammars(config, opened)
    runner.shapes = Shapes(opened.plan.config.vocab_size, eos_ids, grammars)
    scheduler = _scheduler(config, limits, eos_ids)
    engine = Engine(scheduler, runner, opened.close, overlap=overlap, grammars=grammars)
    engine.meter.run = runner.meter.figures
    info = _info(config, opened, limits, memory, recorder)
    return engine, msgspec.structs.replace(info, eos_ids=tuple(sorted(eos_ids)))


def _watch(config: ServeConfig, opened: Opened, engine: Engine, info: EngineInfo) -> None:
    """Begin to read the device and to time operators; warn where its memory is nearly full."""
    share = committed_share(info.memory)
    if share > MOST_COMMITTED:
        log.warning(
            "weights and KV cache take %.0f %% of the device's memory; above %.0f %% memory that "
            "the host backs begins to page, which shows as jitter: give the cache less with "
            "--mem-fraction-static or --max-total-tokens",
            100 * share,
            100 * MOST_COMMITTED,
        )
    if isinstance(engine.runner, Runner):
        engine.runner.timed = TimedSteps(config.operator_timing_interval)
    engine.meter.watch = DeviceWatch(opened.chip.telemetry, config.telemetry_interval)


def checker_of(engine: Engine) -> StepChecker | None:
    """What checks an engine's steps; None where nothing does."""
    return engine.runner.checker if isinstance(engine.runner, Runner) else None


def end_checks(engine: Engine) -> StepChecker | None:
    """End the checking of an engine's steps. The caller tells what was found, so the log does
    not; None where nothing was checked."""
    checker = checker_of(engine)
    if checker is not None and isinstance(engine.runner, Runner):
        engine.runner.checker = None
        checker.close()
    return checker


def _missing(opened: Opened, recorder: Recorder) -> str:
    names = ", ".join(recorder.missing)
    return (
        f"chip '{opened.chip.name}' cannot serve {opened.checkpoint.path}: it needs {names}. "
        f"{recorder.errors[0]}. `anychip coverage` lists all that the model needs"
    )


def planned_memory(config: ServeConfig, opened: Opened, workspace: int) -> MemoryPlan:
    """How the device's memory is shared out. workspace: bytes. Raises NotEnoughMemory."""
    wishes = MemoryWishes(
        config.mem_fraction_static,
        config.max_total_tokens,
        config.context_length is not None,
        snapshots=not config.disable_radix_cache,
    )
    memory = opened.chip.memory
    return plan_memory(
        opened.plan, memory.info(), workspace, opened.limits, wishes, unified=memory.unified
    )


def _host_slots(config: ServeConfig, opened: Opened, memory: MemoryPlan, report: Report) -> int:
    """Pages that host memory keeps. Raises StartError, NotEnoughMemory."""
    if not config.enable_hierarchical_cache:
        return 0
    if opened.chip.memory.unified:
        raise StartError(
            f"--enable-hierarchical-cache: chip '{opened.chip.name}' computes in host memory, so "
            "copies there would only take room from the cache; leave it out and give the cache "
            "itself more with --max-total-tokens or --mem-fraction-static"
        )
    if opened.plan.states is not None:
        raise StartError(
            f"--enable-hierarchical-cache: {opened.plan.config.architecture} keeps recurrent "
            "state, which host memory does not hold, and without it the pages there would be of "
            "no use; leave it out and give the cache itself more with --mem-fraction-static"
        )
    slots = planned_slots(memory, config.hicache_ratio, config.hicache_size, host_facts())
    report(
        f"  host memory: {slots:,} evicted pages, {slots * memory.page_bytes / 2**20:,.1f} MiB, "
        "taken as they fill"
    )
    return slots


def _scheduler(config: ServeConfig, limits: CacheLimits, eos_ids: frozenset[int]) -> Scheduler:
    hooks = SchedulerHooks(
        force_retract_every=config.force_retract_every, force_miss=config.force_radix_miss
    )
    target_ms, threshold = config.target_tpot_ms, config.priority_scheduling_preemption_threshold
    options = SchedulerOptions(
        radix=not config.disable_radix_cache,
        eviction=config.radix_eviction_policy,
        policy=config.schedule_policy,
        retraction=config.retraction_policy,
        preempt_from=None if config.disable_priority_preemption else threshold,
        conservativeness=config.schedule_conservativeness,
        max_queued=config.max_queued_requests,
        max_queued_tokens=config.max_queued_tokens,
        waiting_timeout_s=config.waiting_timeout,
        running_timeout_s=config.running_timeout,
        target_tpot_s=None if target_ms is None else target_ms / 1000,
        jump_forward=not config.disable_jump_forward,
        hooks=hooks,
    )
    return Scheduler(limits, eos_ids, options)


def _grammars(config: ServeConfig, opened: Opened) -> EngineGrammars | None:
    """What follows grammars; the tokenizer is opened with the first one."""
    if config.grammar_backend == "none":
        return None
    size = opened.plan.config.vocab_size
    path = Path(config.tokenizer_path or opened.checkpoint.path)
    return EngineGrammars(
        path, size, config.grammar_backend, jump_forward=not config.disable_jump_forward
    )


def _eos_ids(config: ServeConfig, opened: Opened) -> frozenset[int]:
    ids, metadata = frozenset(opened.plan.config.eos_ids), opened.checkpoint.metadata
    if metadata and config.tokenizer_path is None:
        return ids | eos_ids_in(metadata)
    return ids | read_eos_ids(Path(config.tokenizer_path or opened.checkpoint.path))


def _report_chip(config: ServeConfig, opened: Opened, report: Report) -> None:
    chip, plan = opened.chip, opened.plan
    probe = probe_chip(type(chip), read_options(type(chip), chip_options(config)))
    device = next(d for d in probe.devices if d.index == config.device_index)
    report(
        f"chip asked for: {config.backend}; opened: {chip.name} ({chip.vendor}), device "
        f"{device.index}: {device.name}; contract {dotted(chip.contract)} on {dotted(CONTRACT)}"
    )
    for name, value in chip.capabilities().facts.items():
        report(f"  {name}: {value}")
    if log.isEnabledFor(logging.DEBUG):
        report(
            f"  optional parts that this chip leaves out: {', '.join(chip_slots(chip)) or 'none'}"
        )
    report(
        f"model {opened.checkpoint.path}: {plan.config.architecture}, {plan.config.layers} layers, "
        f"computed in {plan.dtype}, KV cache in {plan.group.dtype}, "
        f"page size {plan.group.page_size}"
    )
    unused = opened.checkpoint.unused
    if unused:
        report(f"  tensors that the network does not take: {len(unused)} ({unused[0]} ...)")
    report(weight_table(opened.checkpoint, plan))


def _info(
    config: ServeConfig, opened: Opened, limits: CacheLimits, memory: MemoryPlan, recorder: Recorder
) -> EngineInfo:
    path = opened.checkpoint.path
    return EngineInfo(
        backend=opened.chip.name,
        device=f"{opened.chip.name}:{config.device_index}",
        model_name=config.served_model_name or path.stem,
        vocab_size=opened.plan.config.vocab_size,
        context_length=limits.context_length,
        page_size=limits.page_size,
        pages=limits.pages,
        max_running=limits.max_running,
        memory=memory.table(),
        operators=tuple((s.op, s.implementation, s.kind) for s in recorder.served()),
        contract=opened.chip.contract,
        notes=dict(opened.chip.capabilities().facts),
        dtype=str(opened.plan.dtype),
        weights=opened.plan.matrix_bytes,
        quantization=opened.quantization,
    )
