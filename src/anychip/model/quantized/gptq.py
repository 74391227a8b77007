"""GPTQ: AutoGPTQ's and GPTQModel's folders, versions 1 and 2, with and without act-order.

A linear is `qweight` int32 [K * bits / 32, N], codes along K; `qzeros` int32 [groups,
N * bits / 32], zero points along N; `scales` [groups, N]; `g_idx` int32 [K], the group of each
column. Version 1 stores zero points less one, modulo 2 ** bits. x = scale * (q - zero).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anychip.model.errors import unsupported
from anychip.model.formats import Bytes
from anychip.model.quantized.groups import Groups, Index
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.pieces import SCALE_DTYPES, Pieces, RawTensors, modules
from anychip.model.quantized.settings import Settings
from anychip.model.quantized.words import unpack_words

_MADE = """
quant_method damp_percent damp_auto_increment true_sequential static_groups sym mse fail_safe
failsafe model_name_or_path model_file_base_name meta dataset tokenizer model_seqlen batch_size
block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize pad_token_id
use_cuda_fp16 use_exllama disable_exllama exllama_config max_input_length cache_block_outputs
backend version lm_head offload_to_disk offload_to_disk_path act_group_aware gptaq hessian
pack_impl
"""
"""How it was made; what of it matters is seen in the tensors themselves."""

_ENDINGS = (".qweight", ".qzeros", ".scales", ".g_idx")
_VERSIONS = {"gptq": 1, "gptq_v2": 0}
"""checkpoint_format -> what is to be added to a stored zero point."""


def gptq_linears(store: RawTensors, config: Mapping[str, Any]) -> dict[str, Linear]:
    """Every quantized linear of the folder, under the name of its weight."""
    settings = Settings(config, frozenset(_MADE.split()))
    bits, group = settings.integer("bits"), settings.integer("group_size")
    written = settings.text("checkpoint_format", settings.text("format", "gptq"))
    if written not in _VERSIONS:
        raise unsupported("quantization_config: checkpoint_format", written, _VERSIONS)
    settings.choice("pack_dtype", ("int32",), "int32")
    settings.choice("method", ("gptq",), "gptq")
    ordered = settings.flag("desc_act")
    settings.finish()
    if bits not in (4, 8):
        raise unsupported("quantization_config: bits", bits, ("4", "8"))
    if group != -1 and group < 1:
        raise unsupported("quantization_config: group_size", group, ("-1", "32", "64", "128"))
    found = {}
    for module in modules(store.tensors, ".qweight"):
        pieces = Pieces(store, module)
        if ordered:
            pieces.entry(".g_idx", ("I32",))
        found[f"{module}.weight"] = _linear(pieces, bits, group, _VERSIONS[written])
    return found


def _linear(pieces: Pieces, bits: int, group: int, added: int) -> Linear:
    pack = 32 // bits
    words, n = pieces.matrix(".qweight", ("I32",))
    k = words * pack
    group = k if group == -1 else group
    count = -(-k // group)
    scales = pieces.shaped(".scales", SCALE_DTYPES, (count, n))
    pieces.shaped(".qzeros", ("I32",), (count, n // pack))

    def codes() -> Bytes:
        return unpack_words(pieces.array(".qweight").T, bits)

    def zeros() -> Bytes:
        stored = unpack_words(pieces.array(".qzeros"), bits).T
        whole: Bytes = (stored + np.uint8(added)) & np.uint8(2**bits - 1)
        return whole

    groups = Groups(
        bits=bits,
        shape=(n, k),
        group=group,
        codes=codes,
        scales=lambda: pieces.floats(".scales").T,
        zeros=zeros,
        index=_index(pieces, k, count),
    )
    tensors, nbytes = pieces.names(*_ENDINGS), pieces.nbytes(*_ENDINGS)
    return groups.linear(tensors, nbytes, half_scales=scales.format == "float16")


def _index(pieces: Pieces, k: int, count: int) -> Index | None:
    if not pieces.has(".g_idx"):
        return None
    pieces.shaped(".g_idx", ("I32",), (k,))
    index = pieces.array(".g_idx")
    if index.min() < 0 or index.max() >= count:
        raise pieces.error(".g_idx", f"names group {index.max()} of {count}, from 0 on")
    return index
