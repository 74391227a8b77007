"""Before the first run: the doctor, the trace, the memory budget, the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anychip.bench.load.calls import LoadError
from anychip.bench.load.figures import Slo
from anychip.bench.load.scaling import Scaling
from anychip.bench.load.traces import Trace
from anychip.bench.sound import examine, soundness
from anychip.config import ServeConfig
from anychip.run.fingerprint import fingerprint_id

from .budget import Budget, Lengths, find_budget
from .command import words_of
from .measure import Asked
from .plan import Load, Plan, Variable
from .state import begun_plan
from .varying import CHUNK, RUNNING, asked_values, flag_of, variables


class TuneError(RuntimeError):
    """Nothing can be tuned; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """config: the base as the user wrote it; local: the same with the model on this disk.

    file: that the trace was read from. vary: flag -> values with commas.
    """

    config: ServeConfig
    local: ServeConfig
    file: Path
    trace: Trace
    output: Path
    vary: Mapping[str, str] = field(default_factory=dict)
    speed: float = 1.0
    scaling: Scaling = field(default_factory=Scaling)
    repeats: int = 3
    objective: str = "throughput"
    slo: Slo = field(default_factory=Slo)
    resume: bool = False
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What is decided before the first run. doctor: in words; forced: although it is red."""

    asked: Question
    load: Asked
    plan: Plan
    budget: Budget
    doctor: str
    forced: bool
    notes: tuple[str, ...]


def prepare(asked: Question, says: Callable[[str], None]) -> Prepared:
    """Look the chip over, find the budget, plan the runs. says: takes lines as they come.

    Raises NotSound, LoadError, ConfigError, BudgetError.
    """
    values = asked_values(asked.vary, asked.config)
    lengths = _lengths(asked.trace, asked.scaling)
    says("the doctor looks at the chip and the model first")
    looks = examine(asked.local, model=True)
    doctor, forced = soundness(looks, asked.local.backend, force=asked.force, done="tuned")
    budget = find_budget(asked.local, lengths)
    for line in (doctor, *budget.told()):
        says(line)
    resolved = {RUNNING: budget.running, CHUNK: budget.chunk}
    varied = variables(values, asked.config, budget.window, resolved)
    if asked.resume and RUNNING not in values:
        varied = _as_before(varied, begun_plan(asked.output))
    plan = Plan(
        base=words_of(asked.config),
        model=_model(asked),
        fingerprint_id=fingerprint_id(budget.fingerprint),
        load=_load(asked, lengths),
        variables=varied,
        repeats=asked.repeats,
        objective=asked.objective,
        slo_ms=(_ms(asked.slo.ttft_s), _ms(asked.slo.tpot_s)),
    )
    return Prepared(
        asked=asked,
        load=Asked(trace=asked.trace, scaling=asked.scaling, speed=asked.speed, slo=asked.slo),
        plan=plan,
        budget=budget,
        doctor=doctor,
        forced=forced,
        notes=asked.trace.notes,
    )


def _as_before(varied: tuple[Variable, ...], before: Plan | None) -> tuple[Variable, ...]:
    """The same with the powers of two that the first start had: another program may use more of the
    memory now, and that is no other question."""
    powers = [v for v in before.variables if v.flag == flag_of(RUNNING)] if before else []
    return tuple(next((p for p in powers if p.flag == v.flag), v) for v in varied)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _lengths(trace: Trace, scaling: Scaling) -> Lengths:
    unknown = sum(one.input_tokens is None for one in trace.requests)
    if unknown:
        raise LoadError(
            f"--trace: nobody counted the tokens of {unknown} of {len(trace.requests)} prompts, so"
            " no budget can be made of it; record the traffic with anychip serve --record"
        )
    return [
        (scaling.input_of(one, trace), scaling.output_of(one.output_tokens))
        for one in trace.requests
    ]


def _load(asked: Question, lengths: Lengths) -> Load:
    whole = hashlib.sha256()
    with asked.file.open("rb") as file:
        while part := file.read(1 << 20):
            whole.update(part)
    return Load(
        trace=asked.file.name,
        digest=whole.hexdigest()[:16],
        requests=len(lengths),
        speed=asked.speed,
        scaling=asked.scaling.told,
        prompt_tokens=sum(prompt for prompt, _ in lengths),
        answer_tokens=sum(answer for _, answer in lengths),
        span_s=asked.trace.seconds,
    )


def _model(asked: Question) -> str:
    """Name and bytes: the same name with other weights is another model."""
    path = Path(str(asked.local.model_path)).expanduser()
    files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
    size = sum(each.stat().st_size for each in files)
    return f"{path.name}, {size:,} bytes"
