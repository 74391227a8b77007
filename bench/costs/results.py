"""What was measured of each model, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from race.roofline import CACHE_BYTES, Work

from costs.limits import Limit, Rates, Step, decode_step, prefill_step
from costs.steps import Cost

FILE = "steps.json"


@dataclass(frozen=True)
class Point:
    """A measured step and its limit; None where the machine's rates are not the chip's."""

    cost: Cost
    limit: Limit | None

    @property
    def reached(self) -> float | None:
        """The share of the limit."""
        return None if self.limit is None else self.limit.reached(self.cost.step)


@dataclass
class Measured:
    """One model. facts: of the chip. skipped: why a step was not measured."""

    name: str
    work: Work
    dtype: str
    cache_dtype: str
    facts: Mapping[str, str]
    points: list[Point] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def decodes(self) -> list[Point]:
        """By context, then by batch."""
        found = [point for point in self.points if point.cost.kind == "decode"]
        return sorted(found, key=lambda point: (point.cost.context, point.cost.batch))

    def prefills(self) -> list[Point]:
        """By length."""
        found = [point for point in self.points if point.cost.kind == "prefill"]
        return sorted(found, key=lambda point: point.cost.context)


@dataclass
class Results:
    """All of it. asked: the command's arguments. rates: None where no model needed them."""

    began: str
    asked: Mapping[str, object]
    rates: Rates | None = None
    models: list[Measured] = field(default_factory=list)


def work_step(work: Work, cost: Cost, element_bytes: int = CACHE_BYTES) -> Step:
    """The bytes and FLOPs of a step that was measured."""
    if cost.kind == "prefill":
        return prefill_step(work, cost.context, element_bytes)
    return decode_step(work, cost.batch, cost.positions, element_bytes)


def as_json(results: Results) -> dict[str, object]:
    """Times in seconds, with what follows from them."""
    return {
        "began": results.began,
        "asked": dict(results.asked),
        "machine": dict(results.rates.facts) if results.rates else None,
        "models": [_model(model) for model in results.models],
    }


def _model(model: Measured) -> dict[str, object]:
    return {
        "name": model.name,
        "work": asdict(model.work),
        "dtype": model.dtype,
        "cache_dtype": model.cache_dtype,
        "facts": dict(model.facts),
        "steps": [_point(point) for point in model.points],
        "skipped": model.skipped,
    }


def _point(point: Point) -> dict[str, object]:
    cost, limit = point.cost, point.limit
    found = asdict(cost)
    operators = found.pop("operators")
    found["python_share"] = cost.python_share
    if limit is not None:
        found["limit"] = asdict(limit) | {"seconds": limit.seconds, "bound_by": limit.bound_by}
        found["reached"] = point.reached
    return found | {"operators": operators}


def write(results: Results, folder: Path) -> None:
    """Replace the folder's file."""
    text = json.dumps(as_json(results), indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def names_of(models: Iterable[Path]) -> list[str]:
    """What tells the models apart: the last part of a path, the whole of it where two are alike."""
    paths = list(models)
    short = [path.name for path in paths]
    return [path.name if short.count(path.name) == 1 else str(path) for path in paths]
