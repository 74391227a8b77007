"""A saved call, run again: by each implementation of a chip that covers it, and by its recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.errors import ChipError
from anychip.contract.operators import Implementation, ImplKind
from anychip.contract.registration import Chip
from anychip.contract.signature import Tier
from anychip.model.formats import dequantize
from anychip.ops.check import Outcome, Verdict, compare, outcome
from anychip.ops.checked import tolerated
from anychip.ops.differences import Difference, differences
from anychip.ops.placed import OpaqueCache, place
from anychip.ops.recipe import COMPOSED, Recipe
from anychip.ops.saved import SavedCall

AS_SAVED = "as saved"


class ReplayError(ValueError):
    """The call cannot be run on this chip; the text says why and what would help."""


@dataclass(frozen=True)
class Replayed:
    """One implementation's answer. verdict: None where there is no answer, `note` says why.

    differences: where it diverges, the worst element and the first others of its row.
    """

    implementation: str
    kind: str
    verdict: Verdict | None
    note: str = ""
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ran and agrees with the oracle."""
        return self.verdict is not None and self.verdict.ok and not self.note


def replay(call: SavedCall, chip: Chip, only: str | None = None) -> list[Replayed]:
    """What the file holds, then every implementation, the recipe last.

    only: one implementation's id, or "composed". Raises ReplayError: an id that the chip does not
    have, a weight format or a cache layout that it does not take, indices that lie outside.
    """
    inputs = {**call.inputs, **{name: _dense(call, name) for name in call.parts}}
    try:
        expected = outcome(call.op, inputs, call.attrs)
    except (IndexError, ValueError) as error:
        raise ReplayError(f"the oracle cannot compute the saved '{call.op}': {error}") from error
    return list(_Replay(call, chip, inputs, expected).all(only))


def offers(call: SavedCall, chip: Chip) -> list[str]:
    """Ids that `only` may name on this chip."""
    found = [i.id for i in chip.operators.of(call.op)]
    return found if CATALOGUE[call.op].tier is Tier.PRIMITIVE else [*found, COMPOSED]


def _dense(call: SavedCall, name: str) -> Any:
    return np.concatenate([dequantize(part) for part in call.parts[name]])


class _Replay:
    """One call on one chip. inputs: host arrays, weights dense; expected: the oracle's answer."""

    def __init__(
        self, call: SavedCall, chip: Chip, inputs: dict[str, Any], expected: Outcome
    ) -> None:
        self._call, self._chip = call, chip
        self._inputs, self._expected = inputs, expected

    def all(self, only: str | None) -> Iterator[Replayed]:
        call, chip = self._call, self._chip
        there = offers(call, chip)
        if only is not None and only not in there:
            raise ReplayError(
                f"chip '{chip.name}' has no '{only}' for '{call.op}'; it has: "
                f"{', '.join(there) or 'none'}"
            )
        self._check_formats()
        yield self._judged(AS_SAVED, call.implementation, call.outputs)
        with ExitStack() as stack:
            found = list(chip.operators.of(call.op))
            if COMPOSED in there:
                found.append(stack.enter_context(Recipe(chip, call.op)))
            for implementation in found:
                if only in (None, implementation.id):
                    yield self._run(implementation)

    def _check_formats(self) -> None:
        takes = self._chip.capabilities().weight_formats
        for name, parts in self._call.parts.items():
            unknown = [p.format for p in parts if p.format not in takes]
            if unknown:
                raise ReplayError(
                    f"chip '{self._chip.name}' does not take '{name}' in {unknown[0]}; it takes "
                    f"{', '.join(takes)}: replay the call on a chip that takes it"
                )

    def _run(self, implementation: Implementation) -> Replayed:
        kind = implementation.kind.value
        try:
            found, note = self._answer(implementation)
        except OpaqueCache as error:
            raise ReplayError(f"chip '{self._chip.name}': {error}") from error
        except ChipError as error:
            return Replayed(implementation.id, kind, None, f"failed: {error}")
        if found is None:
            return Replayed(implementation.id, kind, None, note)
        return self._judged(kind, implementation.id, found, note, implementation)

    def _answer(self, implementation: Implementation) -> tuple[Outcome | None, str]:
        """The outcome, and what is to be said beside it; None where it declines."""
        call = self._call
        with place(self._chip, call.op, call.inputs, call.attrs, call.parts) as placed:
            reason = implementation.declines(placed.call.spec)
            if reason is not None:
                return None, f"does not cover the call: {reason}"
            launch = placed.prepare(implementation)
            placed.poison()
            launch()
            found = placed.outcome()
            damaged = placed.damaged()
        return found, f"wrote beside '{damaged}'" if damaged else ""

    def _judged(
        self,
        kind: str,
        name: str,
        found: Outcome,
        note: str = "",
        implementation: Implementation | None = None,
    ) -> Replayed:
        call = self._call
        with np.errstate(all="ignore"):  # a saved cache may hold garbage beside what is read
            verdict = compare(call.op, self._inputs, call.attrs, found, call.dtype)
        if implementation is not None and implementation.kind is ImplKind.NATIVE:
            verdict = tolerated(verdict, implementation)
        where = () if verdict.ok else differences(self._expected, found, verdict.limit)
        return Replayed(name, kind, verdict, note, where)
