"""Rotary embedding: which frequencies, and how they are stretched. `rope.py` makes the tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anychip.model.errors import CheckpointError, unsupported

ROPE_KINDS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")


_THETAS = (1e-30, 1e30)
"""Beyond these frequencies leave float32."""


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding. theta: base. rotary_dim: rotated elements of a head (even).

    linear: frequencies are divided by `factor`. dynamic: as default up to the context that the
    model was trained for, and no more is served. llama3: long wavelengths are divided by `factor`,
    those between original_context / low and / high_freq_factor in part. yarn: frequencies that turn
    less than beta_slow times in original_context are divided by `factor`, those that turn more than
    beta_fast times are kept; a ramp in between, its ends whole numbers where `truncate`. longrope:
    one divisor a frequency, `short` up to original_context, `long` for a longer context.
    magnitude: cosines and sines are multiplied by it. factors: one divisor a frequency, as GGUF
    stores llama3's; they replace `kind`. interleaved: pairs are (2i, 2i + 1).
    """

    theta: float
    rotary_dim: int
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_context: int = 0
    interleaved: bool = False
    factors: tuple[float, ...] | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    magnitude: float = 1.0
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ROPE_KINDS:
            raise unsupported("rope scaling", self.kind, ROPE_KINDS)
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise CheckpointError(f"rope: {self.rotary_dim} rotated elements; needs an even number")
        for name in ("theta", "factor", "magnitude"):
            _check_number(f"rope {name}", getattr(self, name))
        least, most = _THETAS
        if not least <= self.theta <= most:
            raise CheckpointError(f"rope theta is {self.theta}; {least} to {most} are possible")
        if self.kind == "llama3":
            self._check_llama3()
        if self.kind == "yarn":
            self._check_yarn()
        if self.kind == "longrope":
            self._check_original()
            self._check_factors(self.short)
            self._check_factors(self.long)
        if self.factors is not None:
            self._check_factors(self.factors)

    def _check_llama3(self) -> None:
        _check_number("rope low_freq_factor", self.low_freq_factor)
        _check_number("rope high_freq_factor", self.high_freq_factor)
        if self.high_freq_factor <= self.low_freq_factor or self.original_context < 1:
            raise CheckpointError(
                "rope: llama3 scaling needs high_freq_factor above low_freq_factor and a positive "
                f"original context; has {self.high_freq_factor}, {self.low_freq_factor} and "
                f"{self.original_context}"
            )

    def _check_yarn(self) -> None:
        _check_number("rope beta_fast", self.beta_fast)
        _check_number("rope beta_slow", self.beta_slow)
        self._check_original()
        if self.theta <= 1:
            raise CheckpointError(f"rope: yarn needs a theta above 1, has {self.theta}")

    def _check_original(self) -> None:
        if self.original_context < 1:
            raise CheckpointError(
                f"rope: {self.kind} scaling needs a positive original context, "
                f"has {self.original_context}"
            )

    def _check_factors(self, factors: tuple[float, ...]) -> None:
        if len(factors) != self.rotary_dim // 2:
            raise CheckpointError(
                f"rope: {len(factors)} frequency factors, {self.rotary_dim // 2} are needed"
            )
        for factor in factors:
            _check_number("a rope frequency factor", factor)


def _check_number(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise CheckpointError(f"{name} is {value}; a positive number is needed")
