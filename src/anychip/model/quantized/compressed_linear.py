"""One linear of compressed-tensors.

Packed: `weight_packed` int32 [N, K * bits / 32] of codes along K, each the signed number plus
2 ** (bits - 1); `weight_scale` [N, groups]; `weight_zero_point` int32, packed along N;
`weight_g_idx` int32 [K]; `weight_shape`. Else `weight` int8 or e4m3 [N, K] with `weight_scale` and
`weight_zero_point` beside it. x = scale * (q - zero). Static activations have `input_scale` and
`input_zero_point`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.formats import Bytes, dequantize
from anychip.model.packing.int8 import Activations, pack_int8
from anychip.model.quantized.float8 import fp8_linear
from anychip.model.quantized.groups import Groups, Index
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.pieces import SCALE_DTYPES, Pieces
from anychip.model.quantized.words import unpack_words

PACKED, SCALE, ZERO, INDEX = (
    ".weight_packed",
    ".weight_scale",
    ".weight_zero_point",
    ".weight_g_idx",
)
_ENDINGS = (PACKED, ".weight", SCALE, ZERO, INDEX, ".weight_shape")
_ALL = (*_ENDINGS, ".input_scale", ".input_zero_point")


@dataclass(frozen=True)
class WeightArgs:
    """How weights are quantized. group, block: only with the strategies of these names."""

    bits: int
    is_float: bool
    symmetric: bool
    strategy: str
    group: int | None
    block: tuple[int, int] | None


@dataclass(frozen=True)
class Activation:
    """How the activations of a product are to be rounded. int8: to whole numbers of 8 bits."""

    int8: bool
    dynamic: bool
    symmetric: bool
    strategy: str


def compressed_linear(pieces: Pieces, args: WeightArgs, activation: Activation | None) -> Linear:
    """The linear; refuses tensors that do not fit what the settings say of it."""
    if args.is_float:
        if not args.symmetric:
            raise pieces.unsupported(".weight", "fp8 with zero points is not supported")
        return fp8_linear(pieces, SCALE, args.block)
    if args.strategy == "block":
        raise pieces.unsupported(SCALE, "whole numbers with scales of blocks are not supported")
    shape = _packed_shape(pieces, args.bits) if pieces.has(PACKED) else _int8_shape(pieces, args)
    if activation is not None and activation.int8 and args.bits == 8 and not pieces.has(PACKED):
        return _int8_product(pieces, args, activation, shape)
    found = _grouped(pieces, args, shape)
    if activation is None:
        return found
    return found.unpacked(f"int{args.bits} for activations that are rounded otherwise")


def _packed_shape(pieces: Pieces, bits: int) -> Shape:
    pieces.shaped(".weight_shape", ("I64", "I32"), (2,))
    n, k = (int(size) for size in pieces.array(".weight_shape"))
    pieces.shaped(PACKED, ("I32",), (n, -(-k * bits // 32)))
    return n, k


def _int8_shape(pieces: Pieces, args: WeightArgs) -> Shape:
    if args.bits != 8:
        raise pieces.error(".weight", f"is not packed, but has {args.bits} bits by its settings")
    return pieces.matrix(".weight", ("I8",))


def _int8_product(pieces: Pieces, args: WeightArgs, activation: Activation, shape: Shape) -> Linear:
    """int8 by int8: the contract's w8a8 where both sides are as it says, else converted."""
    plain = _grouped(pieces, args, shape)
    if args.strategy == "group" or not args.symmetric:
        return plain.unpacked("int8 with groups or zero points, for int8")
    if activation.dynamic:
        if activation.strategy != "token" or not activation.symmetric:
            return plain.unpacked("int8 for int8 that is rounded otherwise")
        return _w8a8(pieces, plain, None)
    if activation.strategy != "tensor":
        return plain.unpacked("int8 for int8 that is rounded otherwise")
    return _w8a8(pieces, plain, _static(pieces, symmetric=activation.symmetric))


def _static(pieces: Pieces, *, symmetric: bool) -> Activations:
    scale = pieces.number(".input_scale", SCALE_DTYPES)
    if not (math.isfinite(scale) and scale > 0):
        raise pieces.error(".input_scale", f"is {scale}, a number above 0 is needed")
    zero = 0.0 if symmetric else pieces.number(".input_zero_point", ("I8", "I32", "I64"))
    return Activations(scale, int(zero))


def _w8a8(pieces: Pieces, plain: Linear, activations: Activations | None) -> Linear:
    format = "w8a8" if activations is None else "w8a8_static"

    def exact() -> HostWeight:
        scales = _columns(pieces.floats(SCALE), plain.shape[0])
        raw = pack_int8(pieces.array(".weight"), scales, activations)
        return HostWeight(format, plain.shape, raw.data.toreadonly())

    head = b"" if activations is None else activations.head().tobytes()
    return replace(plain, format=format, exact=exact, plain=lambda: dequantize(exact()), head=head)


def _grouped(pieces: Pieces, args: WeightArgs, shape: Shape) -> Linear:
    n, k = shape
    group = args.group or k
    count = -(-k // group)
    shapes: tuple[Shape, ...] = ((n, count),)
    if count == 1:
        shapes = ((n, 1), (n,)) if args.strategy == "channel" else ((n, 1), (1,), (), (1, 1))
    scales = pieces.shaped(SCALE, SCALE_DTYPES, *shapes)
    groups = Groups(
        bits=args.bits,
        shape=shape,
        group=group,
        codes=lambda: _codes(pieces, args.bits, k),
        scales=lambda: _columns(pieces.floats(SCALE), n),
        zeros=_zeros(pieces, args, (n, count)),
        index=_index(pieces, k, count),
    )
    tensors, nbytes = pieces.names(*_ALL), pieces.nbytes(*_ALL)
    return groups.linear(tensors, nbytes, half_scales=scales.format == "float16")


def _codes(pieces: Pieces, bits: int, k: int) -> Bytes:
    """Codes from 0 on: signed numbers plus 2 ** (bits - 1), as packed ones are stored."""
    if pieces.has(PACKED):
        return unpack_words(pieces.array(PACKED), bits)[:, :k]
    return _unsigned(pieces.array(".weight"))


def _unsigned(signed: npt.NDArray[Any]) -> Bytes:
    shifted: Bytes = np.ascontiguousarray(signed).view(np.uint8) ^ np.uint8(128)
    return shifted


def _zeros(pieces: Pieces, args: WeightArgs, shape: Shape) -> Callable[[], Bytes]:
    """Zero points as codes: what 0 is where there are none."""
    n, count = shape
    middle = 2 ** (args.bits - 1)
    if args.symmetric:
        _refuse_zeros(pieces, args.bits, n)
        return lambda: np.full(shape, middle, np.uint8)
    if pieces.has(PACKED) and args.strategy != "tensor":
        pieces.shaped(ZERO, ("I32",), (-(-n * args.bits // 32), count))
        return lambda: unpack_words(pieces.array(ZERO).T, args.bits)[:, :n].T
    pieces.shaped(ZERO, ("I8",), shape, *([(n,), (1,), (), (1, 1)] if count == 1 else []))
    return lambda: _columns(_unsigned(pieces.array(ZERO)), n)


def _refuse_zeros(pieces: Pieces, bits: int, n: int) -> None:
    """Where the settings know no zero points, those that are stored must say 0."""
    if not pieces.has(ZERO):
        return
    packed = pieces.entry(ZERO, ("I8", "I32")).format == "I32"
    numbers = pieces.array(ZERO)
    if packed:
        numbers = unpack_words(numbers.T, bits)[:, :n] ^ np.uint8(2 ** (bits - 1))
    if numbers.any():
        raise pieces.error(ZERO, "is not 0, but the settings say that the weight is symmetric")


def _columns(numbers: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """A number for all rows, or one a row or group: [N, groups]."""
    return np.broadcast_to(numbers, (n, 1)) if numbers.size == 1 else numbers.reshape(n, -1)


def _index(pieces: Pieces, k: int, count: int) -> Index | None:
    if not pieces.has(INDEX):
        return None
    pieces.shaped(INDEX, ("I32",), (k,))
    index = pieces.array(INDEX)
    if (index == -1).all():  # written where the order is that of the groups
        return None
    if index.min() < 0 or index.max() >= count:
        raise pieces.error(INDEX, f"names group {index.max()} of {count}, from 0 on")
    return index
