"""Tables of rotary cosines and sines, built on the host.

Frequencies and angles are rounded to float32 at the same places where transformers rounds them
(Su et al. 2021; Peng et al. 2023 for yarn; Ding et al. 2024 for longrope; its
modeling_rope_utils), so that greedy tokens agree; powers, cosines and sines are taken in float64
and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from anychip.model.rope_config import RopeConfig

Floats = npt.NDArray[np.float32]
_ROWS = 4096  # positions at a time: bounds the float64 scratch


def inverse_frequencies(rope: RopeConfig, positions: int = 0) -> Floats:
    """Radians a position of each rotated pair, float32 [rotary_dim / 2].

    positions: of the context that is served, which chooses between longrope's two lists.
    """
    exponents = np.arange(0, rope.rotary_dim, 2, dtype=np.float32) / np.float32(rope.rotary_dim)
    powers = np.power(float(rope.theta), exponents.astype(np.float64)).astype(np.float32)
    if rope.factors is None and rope.kind == "longrope":
        chosen = rope.long if positions > rope.original_context else rope.short
        powers = powers * np.asarray(chosen, np.float32)
    frequencies: Floats = np.reciprocal(powers)
    if rope.factors is not None:
        frequencies /= np.asarray(rope.factors, np.float32)
        return frequencies
    return _SCALINGS[rope.kind](frequencies, rope)


def cos_sin_table(rope: RopeConfig, positions: int, context: int | None = None) -> Floats:
    """Cosines, then sines, of positions 0 .. positions-1: float32 [positions, rotary_dim].

    context: positions that are served; None: these.
    """
    frequencies = inverse_frequencies(rope, context or positions)
    half = len(frequencies)
    table = np.empty((positions, 2 * half), np.float32)
    for start in range(0, positions, _ROWS):
        rows = np.arange(start, min(start + _ROWS, positions), dtype=np.float32)
        angles = (rows[:, None] * frequencies).astype(np.float64)
        table[start : start + _ROWS, :half] = np.cos(angles)
        table[start : start + _ROWS, half:] = np.sin(angles)
    if rope.magnitude != 1.0:
        table *= np.float32(rope.magnitude)
    return table


def _default(frequencies: Floats, rope: RopeConfig) -> Floats:
    return frequencies


def _linear(frequencies: Floats, rope: RopeConfig) -> Floats:
    scaled: Floats = frequencies / np.float32(rope.factor)
    return scaled


def _llama3(frequencies: Floats, rope: RopeConfig) -> Floats:
    """Llama 3.1: divide long wavelengths by `factor`, keep short ones, blend in between."""
    context, factor = rope.original_context, np.float32(rope.factor)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    wavelengths = np.reciprocal(frequencies) * np.float32(2 * math.pi)
    is_long = wavelengths > np.float32(context / low)
    is_short = wavelengths < np.float32(context / high)
    scaled = np.where(is_long, frequencies / factor, frequencies)
    turns = np.reciprocal(wavelengths) * np.float32(context)
    smooth = (turns - np.float32(low)) / np.float32(high - low)
    blend = (np.float32(1) - smooth) * scaled / factor + smooth * scaled
    return np.where(is_long | is_short, scaled, blend).astype(np.float32)


def _yarn(frequencies: Floats, rope: RopeConfig) -> Floats:
    """Peng et al. 2023, section 3.2: kept above beta_fast turns, divided below beta_slow."""
    low, high = (_yarn_dimension(rope, turns) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    width = high - low or 0.001
    ramp = (np.arange(rope.rotary_dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(width)
    kept = np.float32(1) - np.clip(ramp, 0, 1)
    divided = np.reciprocal(np.float32(rope.factor) * np.reciprocal(frequencies))
    mixed: Floats = divided * (np.float32(1) - kept) + frequencies * kept
    return mixed


def _yarn_dimension(rope: RopeConfig, turns: float) -> float:
    """The element whose pair turns that often within the original context."""
    inside = math.log(rope.original_context / (turns * 2 * math.pi))
    return rope.rotary_dim * inside / (2 * math.log(rope.theta))


_SCALINGS: dict[str, Callable[[Floats, RopeConfig], Floats]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "longrope": _default,  # divided already
    "llama3": _llama3,
    "yarn": _yarn,
}
