"""Random weights that make a tiny model lively: each a function of seed, name and shape alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.formats import Floats, plain_weight
from anychip.model.quantize import quantize
from anychip.model.sources import LINEAR, Part, WeightSource
from anychip.model.tiny_quantized import quantized_linear

LIVELY = 1.2
"""Standard deviation of a projection's outputs for normed inputs: large enough that greedy output
varies, small enough that attention does not hang on roundings."""

SMALL = 0.1
"""Standard deviation of biases, and of norms around 1."""


def noise(seed: int, name: str, shape: Shape) -> Floats:
    """Standard normal, of a tensor's own: float32."""
    generator = np.random.default_rng([zlib.crc32(name.encode()), seed])
    return generator.standard_normal(shape, np.float32)


def matrix_values(seed: int, name: str, shape: Shape) -> Floats:
    """Rows [.., K] that neither raise nor damp a normed input much."""
    scaled: Floats = noise(seed, name, shape) * np.float32(LIVELY / math.sqrt(shape[-1]))
    return scaled


def norm_values(seed: int, name: str, shape: Shape) -> Floats:
    """About 1."""
    return 1 + SMALL * noise(seed, name, shape)


def tensors_of(
    sources: Sequence[WeightSource], format: str, plain: str, seed: int
) -> Mapping[str, HostWeight]:
    """Every tensor that the sources are made of, by its name in the file.

    format: of the matrices that a chip packs, a plain dtype or blocks; plain: of all others. Raises
    CheckpointError where K does not fill the format's blocks.
    """
    found: dict[str, HostWeight] = {}
    for source, part in _tensors(sources):
        values = _values(source, part, seed)
        found[part.tensor] = quantize(values, plain if source.uses is None else format)
    return found


def quantized_tensors(
    sources: Sequence[WeightSource], format: str, plain: str, seed: int
) -> Mapping[str, HostWeight]:
    """The same for a folder whose linears are in a format of `tiny_quantized.py`."""
    found: dict[str, HostWeight] = {}
    for source, part in _tensors(sources):
        values = _values(source, part, seed)
        module = part.tensor.removesuffix(".weight")
        if source.uses == LINEAR and module != part.tensor and values.ndim == 2:
            found.update(quantized_linear(module, values, format))
        else:
            found[part.tensor] = quantize(values, plain)
    return found


def _tensors(sources: Sequence[WeightSource]) -> Iterator[tuple[WeightSource, Part]]:
    """Each tensor once: several weights may take rows of one."""
    met: set[str] = set()
    for source in sources:
        for part in source.parts:
            if part.tensor not in met:
                met.add(part.tensor)
                yield source, part


def _values(source: WeightSource, part: Part, seed: int) -> Floats:
    name, shape = part.tensor, part.shape
    if len(shape) > 1:
        return matrix_values(seed, name, shape)
    if "norm" in source.name and not name.endswith(".bias"):
        shifted: Floats = norm_values(seed, name, shape) - np.float32(part.plus)
        return shifted
    if source.name.endswith("rate"):  # rates are below 0
        rates: Floats = noise(seed, name, shape)
        return rates if part.logarithm else -np.exp(rates)
    drawn: Floats = noise(seed, name, shape) * np.float32(SMALL if "bias" in name else 1.0)
    return drawn


def norm_weight(seed: int, name: str, shape: Shape) -> HostWeight:
    """Of a GGUF file, which holds norms in float32."""
    return plain_weight(norm_values(seed, name, shape))
