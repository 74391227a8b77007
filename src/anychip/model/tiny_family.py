"""Tiny models of any family with random weights, written with numpy alone: config.json says which.

A family's own list of weights says which tensors there are; nothing here knows a family.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anychip.contract.formats import BLOCK_FORMATS, PLAIN_FORMATS, is_quantized
from anychip.contract.weights import HostWeight
from anychip.model.checkpoint import open_checkpoint
from anychip.model.config import ModelConfig
from anychip.model.errors import CheckpointError, unsupported
from anychip.model.families import FAMILIES, config_from_hf
from anychip.model.folder import SINGLE
from anychip.model.gguf_writer import Setting, write_gguf
from anychip.model.safetensors_writer import write_safetensors
from anychip.model.tiny_quantized import FOLDER_FORMATS, quantization_config
from anychip.model.tiny_tensors import quantized_tensors, tensors_of

FLOAT32, BFLOAT16 = "float32", "bfloat16"
_FORMATS = (*PLAIN_FORMATS, *BLOCK_FORMATS, *FOLDER_FORMATS)

MOST_ELEMENTS = 1 << 28
"""Of a written model: 1 GiB in float32. Tiny ones have a thousandth of it."""

_OF_THE_FILE = ("dtype", "eos_ids", "bos_id")
"""Fields that a file without a tokenizer, in another format, says otherwise."""


def write_family(
    folder: Path,
    settings: Mapping[str, Any],
    format: str = FLOAT32,
    *,
    gguf: Mapping[str, Setting] | None = None,
    seed: int = 0,
) -> Path:
    """Write a model into `folder`, which is made, and return the path to open.

    settings: its config.json. format: a plain dtype makes a Hugging Face folder, all tensors in it;
    a block format makes a GGUF file, its norms and biases in float32; a grouped one or w8a8 makes a
    folder with such linears, all else in bfloat16. gguf: metadata beyond sizes and rotation, keys
    without the architecture. None has a tokenizer.

    Raises CheckpointError (UnsupportedModel) where the settings, the format or the metadata do not
    fit, OSError.
    """
    config = config_from_hf(settings)
    _check_size(config)
    folder.mkdir(parents=True, exist_ok=True)
    if format in BLOCK_FORMATS:
        return _write_gguf(folder, config, format, gguf or {}, seed)
    family = FAMILIES[config.architecture]
    sources = family.sources(config, family.hf_names)
    if format in PLAIN_FORMATS:
        told = {**settings, "dtype": format}
        return _write_folder(folder, told, tensors_of(sources, format, format, seed))
    if not is_quantized(format):
        raise unsupported("format of a written model", format, _FORMATS)
    described = quantization_config(format)
    told = {**settings, "dtype": BFLOAT16, "quantization_config": described}
    return _write_folder(folder, told, quantized_tensors(sources, format, BFLOAT16, seed))


def _check_size(config: ModelConfig) -> None:
    """The largest tensors are drawn in float32 at once, and a disk has to take all of them."""
    family = FAMILIES[config.architecture]
    parts = {
        part.tensor: part.shape
        for source in family.sources(config, family.hf_names)
        for part in source.parts
    }
    elements = sum(math.prod(shape) for shape in parts.values())
    if elements > MOST_ELEMENTS:
        raise CheckpointError(
            f"the settings make a model of {elements:,} elements; at most {MOST_ELEMENTS:,} are "
            "written, give smaller sizes"
        )


def _write_folder(
    folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, HostWeight]
) -> Path:
    write_safetensors(folder / SINGLE, tensors)
    text = json.dumps(settings, indent=1)
    partial = folder / f"config.json.{os.getpid()}.part"
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(folder / "config.json")
    return folder


def _write_gguf(
    folder: Path, config: ModelConfig, format: str, more: Mapping[str, Setting], seed: int
) -> Path:
    family = FAMILIES[config.architecture]
    if family.gguf_names is None:  # none of its GGUF files is read
        raise unsupported(f"format of a written {family.name}", format, PLAIN_FORMATS)
    tensors = tensors_of(family.sources(config, family.gguf_names), format, FLOAT32, seed)
    metadata = {
        f"{family.gguf}.{key}": value for key, value in {**gguf_sizes(config), **more}.items()
    }
    path = folder / "model.gguf"
    write_gguf(path, {"general.architecture": family.gguf, **metadata}, tensors)
    _check_same(path, config)
    return path


def gguf_sizes(config: ModelConfig) -> dict[str, Setting]:
    """What a GGUF file says of sizes and rotation; keys without the architecture."""
    rope = config.rope
    return {
        "vocab_size": config.vocab_size,
        "block_count": config.layers,
        "context_length": config.context_length,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.dimension_count": rope.rotary_dim,
        "rope.freq_base": rope.theta,
    }


def _check_same(path: Path, wanted: ModelConfig) -> None:
    """The file says what config.json says, or there would be two models of one name."""
    checkpoint = open_checkpoint(path)
    found = asdict(checkpoint.config)
    checkpoint.close()
    for name, value in asdict(wanted).items():
        if name not in _OF_THE_FILE and not _equal(found[name], value):
            raise CheckpointError(
                f"its metadata make {name} {found[name]!r:.80}, config.json {value!r:.80}: give "
                "the GGUF keys that say so too",
                path=path,
            )


def _equal(found: Any, wanted: Any) -> bool:
    """Floats as far as a file's float32 holds them."""
    if isinstance(wanted, float) and isinstance(found, float):
        return abs(found - wanted) <= 1e-6 * abs(wanted)
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_equal(found[k], wanted[k]) for k in wanted)
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        return len(wanted) == len(found) and all(map(_equal, found, wanted))
    return bool(found == wanted)
