"""`anychip coverage`: what a model needs of a chip, and who serves it. No weights are loaded."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.config import ServeConfig
from anychip.ops.record import Served
from anychip.run.plan_run import open_run


@dataclass(frozen=True)
class CoverageReport:
    """Rows in the catalogue's order; `missing` names operators that nothing covers."""

    model: str
    backend: str
    rows: list[Served]
    missing: list[str]


def coverage(config: ServeConfig) -> CoverageReport:
    """Record the model's programs against the chip's table. Raises what `open_run` raises."""
    opened = open_run(config)
    try:
        recorder = opened.record()
        path = str(opened.checkpoint.path)
        return CoverageReport(path, config.backend, recorder.served(), recorder.missing)
    finally:
        opened.close()
