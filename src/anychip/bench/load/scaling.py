"""Lengths of a trace made to fit a model: times a factor, cut, or both; sharing is kept."""

from __future__ import annotations

import msgspec

from .calls import LoadError
from .traces import Trace, Traced


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Factors first, then limits in tokens."""

    input: float = 1.0
    output: float = 1.0
    max_input: int | None = None
    max_output: int | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            value = getattr(self, name)
            if not 0 < value <= 1000:
                raise LoadError(f"--scale-{name}: {value:g} must be above 0 and at most 1000")

    @property
    def changes_prompts(self) -> bool:
        """Whether prompts get other lengths."""
        return self.input != 1 or self.max_input is not None

    @property
    def told(self) -> str:
        """What was done, for every report."""
        parts = [
            f"{name} lengths times {factor:g}"
            for name, factor in (("input", self.input), ("output", self.output))
            if factor != 1
        ]
        parts += [
            f"{name} cut at {most} tokens"
            for name, most in (("inputs", self.max_input), ("outputs", self.max_output))
            if most is not None
        ]
        return ", ".join(parts) if parts else "lengths as they are"

    def block(self, trace: Trace) -> int:
        """Tokens of a scaled block."""
        return max(1, round(trace.block * self.input))

    def input_of(self, one: Traced, trace: Trace) -> int:
        """Tokens of a scaled prompt. A prompt of blocks has whole scaled blocks and a scaled rest,
        so that prompts that shared so many blocks still do."""
        length = one.input_tokens or 1
        if one.blocks:
            whole = len(one.blocks) - 1
            rest = length - whole * trace.block
            scaled = whole * self.block(trace) + self._times(rest, self.block(trace))
        else:
            scaled = max(1, round(length * self.input))
        return scaled if self.max_input is None else min(scaled, self.max_input)

    def output_of(self, tokens: int) -> int:
        """Tokens of a scaled answer, at least one."""
        scaled = max(1, round(tokens * self.output))
        return scaled if self.max_output is None else min(scaled, self.max_output)

    def _times(self, rest: int, most: int) -> int:
        return min(most, max(1, round(rest * self.input)))
