"""Calls some of whose arguments lie on the chip already: caches, weights, tensors of any extent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from anychip.conform.operator_calls import finish
from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Implementation, Value
from anychip.contract.registration import Chip
from anychip.contract.signature import Arg
from anychip.contract.tensor import Tensor
from anychip.contract.weights import Weight
from anychip.ops.placed import HostWeights, Placed
from anychip.ops.recipe import Recipe

Inputs = Mapping[str, Any]
"""As `Case.inputs`; what lies on the chip already is a Tensor, a Weight or a CacheView."""


_THERE = (Tensor, Weight, CacheView)


class NotCovered(ValueError):
    """The implementation declines the call; the text says why."""


class Given(Placed):
    """A placed call. What was there before stays its owner's."""

    def _value(self, arg: Arg, parts: HostWeights) -> Value | None:
        given = self._given.get(arg.name)
        if isinstance(given, _THERE):
            return given
        return super()._value(arg, parts)

    def outcome(self) -> dict[str, Any]:
        """Outputs and written inputs, copied out; what was there before is left to its owner."""
        found: dict[str, Any] = {n: self.read(t) for n, t in self.call.outputs.items()}
        for name in CATALOGUE[self._op].writes:
            if not isinstance(self._given.get(name), _THERE):
                found[name] = self._written(self.call.inputs[name])
        return found


def run_given(
    chip: Chip, op: str, inputs: Inputs, attrs: Mapping[str, Any], implementation: Implementation
) -> dict[str, Any]:
    """What one run gave, as `Given.outcome`. Raises NotCovered, ChipError, OpaqueCache, and
    ValueError where bytes beside an argument were written."""
    call = Given(chip, op, inputs, attrs)
    try:
        call.upload({})
        reason = implementation.declines(call.call.spec)
        if reason is not None:
            raise NotCovered(f"{implementation.id} declines: {reason}")
        launch = call.prepare(implementation)
        call.poison()
        finish(chip, launch)
        damaged = call.damaged()
        if damaged is not None:
            raise ValueError(f"{implementation.id}: bytes beside '{damaged}' were written")
        return call.outcome()
    finally:
        call.close()


def computed_by(chip: Chip, op: str, stack: ExitStack) -> tuple[Implementation, ...]:
    """The chip's own implementations; the recipe where it has none. It lives as long as `stack`."""
    return chip.operators.of(op) or (stack.enter_context(Recipe(chip, op)),)
