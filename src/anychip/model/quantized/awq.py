"""AWQ as AutoAWQ's "gemm" version writes it: 4 bits, a zero point and a scale for each group.

A linear is `qweight` int32 [K, N / 8], `qzeros` int32 [groups, N / 8], both along N with the
numbers of a word in the order 0 2 4 6 1 3 5 7, and `scales` [groups, N]. x = scale * (q - zero).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from anychip.model.errors import UnsupportedModel, unsupported
from anychip.model.formats import Bytes
from anychip.model.quantized.groups import Groups
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.pieces import SCALE_DTYPES, Pieces, RawTensors, modules
from anychip.model.quantized.settings import Settings

_MADE = "quant_method modules_to_not_convert exllama_config fuse_max_seq_len modules_to_fuse"
"""Keys that change no number."""

_ENDINGS = (".qweight", ".qzeros", ".scales")
_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Place in a word, lowest bits first -> column within the word's eight."""


def awq_linears(store: RawTensors, config: Mapping[str, Any]) -> dict[str, Linear]:
    """Every quantized linear of the folder, under the name of its weight."""
    settings = Settings({k: _lower(v) for k, v in config.items()}, frozenset(_MADE.split()))
    bits = settings.integer("bits", settings.integer("w_bit", 4))
    group = settings.integer("group_size", settings.integer("q_group_size", -1))
    settings.choice("version", ("gemm",), "gemm")
    settings.choice("backend", ("autoawq",), "autoawq")
    zero_point = settings.flag("zero_point", True)
    settings.finish()
    if bits != 4:
        raise unsupported("quantization_config: bits", bits, ("4",))
    if not zero_point:
        raise UnsupportedModel("quantization_config: 'zero_point' is false; true is supported")
    if group != -1 and group < 1:
        raise unsupported("quantization_config: group_size", group, ("-1", "32", "64", "128"))
    return {
        f"{module}.weight": _linear(Pieces(store, module), group)
        for module in modules(store.tensors, ".qweight")
    }


def _linear(pieces: Pieces, group: int) -> Linear:
    k, words = pieces.matrix(".qweight", ("I32",))
    n = words * 8
    group = k if group == -1 else group
    count = -(-k // group)
    scales = pieces.shaped(".scales", SCALE_DTYPES, (count, n))
    pieces.shaped(".qzeros", ("I32",), (count, words))
    groups = Groups(
        bits=4,
        shape=(n, k),
        group=group,
        codes=lambda: _columns(pieces.array(".qweight")),
        scales=lambda: pieces.floats(".scales").T,
        zeros=lambda: _columns(pieces.array(".qzeros")),
    )
    tensors, nbytes = pieces.names(*_ENDINGS), pieces.nbytes(*_ENDINGS)
    return groups.linear(tensors, nbytes, half_scales=scales.format == "float16")


def _columns(words: npt.NDArray[Any]) -> Bytes:
    """int32 [rows, N / 8] -> [N, rows] numbers of 4 bits, in the order of the columns."""
    places = np.ascontiguousarray(words.T, "<i4").view(np.uint8).reshape(-1, len(words), 4)
    columns = np.empty((len(places), 8, len(words)), np.uint8)
    for byte in range(4):
        pair = np.ascontiguousarray(places[:, :, byte])
        columns[:, _ORDER[2 * byte]] = pair & 15
        columns[:, _ORDER[2 * byte + 1]] = pair >> 4
    return columns.reshape(-1, len(words))


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value
