"""`anychip coverage`: what a model needs of a chip, and who serves it. No weights are loaded.

Without a model: the whole catalogue, as a checklist of what the chip brings.
"""

from __future__ import annotations

from dataclasses import dataclass

from anychip.config import ServeConfig
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.discovery import open_chip
from anychip.contract.operators import DtypeRow, Implementation, OperatorTable
from anychip.contract.signature import Signature
from anychip.ops.compositions import COMPOSITIONS
from anychip.ops.record import MISSING, Served
from anychip.run.plan_run import chip_options, open_run


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


@dataclass(frozen=True)
class Brought:
    """One line of the checklist. kind: native, composed or missing. call: what is called of the
    vendor's. dtypes: by variable of the signature, with the compute type. assumed: what of the
    call is a guess."""

    op: str
    tier: str
    kind: str
    implementation: str = ""
    call: str = ""
    dtypes: str = ""
    assumed: str = ""


def checklist(config: ServeConfig) -> list[Brought]:
    """A line for each implementation of each operator of the catalogue. Raises ContractError,
    ChipError."""
    chip = open_chip(config.backend, config.device_index, chip_options(config))
    try:
        return brought(chip.operators)
    finally:
        chip.close()


def brought(table: OperatorTable) -> list[Brought]:
    """The catalogue, in its order, as a chip's table serves it."""
    return [line for s in CATALOGUE.values() for line in _lines(s, table.of(s.name))]


def _lines(signature: Signature, own: tuple[Implementation, ...]) -> list[Brought]:
    op, tier = signature.name, signature.tier.value
    if not own:
        kind = "composed" if op in COMPOSITIONS else MISSING
        return [Brought(op, tier, kind)]
    return [
        Brought(op, tier, i.kind.value, i.id, i.call, _dtypes(i.dtypes), i.assumed) for i in own
    ]


def _dtypes(rows: tuple[DtypeRow, ...]) -> str:
    texts = []
    for row in rows:
        types = " ".join(f"{name}={'|'.join(found)}" for name, found in row.types.items())
        texts.append(f"{types or 'as the signature'}, computed in {row.compute}")
    return "; ".join(dict.fromkeys(texts))
