"""A model of transformers as a GGUF file, laid out as llama.cpp's converter does for its kind.

Facts: llama.cpp's conversion scripts (settings, which rows are permuted, which norms get 1 added)
and gguf-py's table of tensor names. All weights are float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import tiny_models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Settings = dict[str, Any]
Named = dict[str, np.ndarray]


@dataclass(frozen=True)
class Conversion:
    """How one architecture is converted.

    arch: of GGUF. paired: query and key rows are interleaved in pairs. plus: added to norms but
    those whose names end as in `unshifted`.
    own: settings of its own, by key, from the config of transformers. split: what one of its
    tensors becomes, by names as they were published. expert_format: of the weights of experts.
    more: further tensors of a model, by their names in the file. quantized: endings of the names
    that are in expert_format.
    """

    arch: str
    paired: bool = False
    plus: float = 0.0
    unshifted: tuple[str, ...] = ()
    own: Callable[[Any], Settings] = lambda _config: {}
    split: Callable[[str, np.ndarray], Named] = lambda name, array: {name: array}
    expert_format: str = "f32"
    quantized: tuple[str, ...] = ("_exps.weight",)
    more: Callable[[Any], Named] = lambda _model: {}


def _gemma(config: Any) -> Settings:
    return {
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
    }


def _gemma2(config: Any) -> Settings:
    return {
        **_gemma(config),
        "attn_logit_softcapping": config.attn_logit_softcapping,
        "final_logit_softcapping": config.final_logit_softcapping,
        "attention.sliding_window": config.sliding_window,
    }


def _gemma3(config: Any) -> Settings:
    ropes = config.rope_parameters
    found = {
        **_gemma(config),
        "rope.freq_base": ropes["full_attention"]["rope_theta"],
        "attention.sliding_window": config.sliding_window,
    }
    if config.final_logit_softcapping:
        found["final_logit_softcapping"] = config.final_logit_softcapping
    if ropes["full_attention"]["rope_type"] == "linear":
        found["rope.scaling.type"] = "linear"
        found["rope.scaling.factor"] = ropes["full_attention"]["factor"]
    return found


def _granite(config: Any) -> Settings:
    return {
        "vocab_size": config.vocab_size,
        "rope.dimension_count": config.hidden_size // config.num_attention_heads,
        "attention.scale": float(config.attention_multiplier),
        "embedding_scale": float(config.embedding_multiplier),
        "residual_scale": float(config.residual_multiplier),
        "logit_scale": float(config.logits_scaling),
    }


def _llama(config: Any) -> Settings:
    head_dim = getattr(config, "head_dim", None)
    per_head = head_dim or config.hidden_size // config.num_attention_heads
    return {"vocab_size": config.vocab_size, "rope.dimension_count": per_head}


def _phi3(config: Any) -> Settings:
    """Of longrope's kind nothing is told: its lists are tensors."""
    rope, context = config.rope_parameters, config.max_position_embeddings
    original = config.original_max_position_embeddings
    share = rope.get("partial_rotary_factor", 1.0)
    found = {
        "rope.scaling.original_context_length": original,
        "rope.dimension_count": int(share * config.hidden_size) // config.num_attention_heads,
        "attention.sliding_window": config.sliding_window or 0,
    }
    if rope["rope_type"] == "longrope":
        grown = math.log(context / original) / math.log(original) if context > original else 0.0
        found["rope.scaling.attn_factor"] = math.sqrt(1 + grown)
    return found


def _longrope(model: Any) -> Named:
    rope = model.config.rope_parameters
    kinds = ("long", "short") if rope["rope_type"] == "longrope" else ()
    return {
        f"rope_factors_{kind}.weight": np.array(rope[f"{kind}_factor"], np.float32)
        for kind in kinds
    }


def _glm(config: Any) -> Settings:
    """What transformers has no name for in common with the files it was made for is a constant."""
    return {
        **_glm4(config),
        "attention.key_length": None,
        "attention.value_length": None,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "context_length": config.hidden_size,
    }


def _glm4(config: Any) -> Settings:
    head_dim = getattr(config, "head_dim", None)
    per_head = head_dim or config.hidden_size // config.num_attention_heads
    share = config.rope_parameters.get("partial_rotary_factor", 0.5)
    return {"rope.dimension_count": int(per_head * share)}


def _yarn(config: Any) -> Settings:
    rope = config.rope_parameters
    if rope["rope_type"] != "yarn":
        return {}
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": rope["factor"],
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
    }


CONVERSIONS = {
    "Llama": Conversion("llama", paired=True, own=_llama),
    "Mistral": Conversion("llama", paired=True, own=_llama),
    "Qwen2": Conversion("qwen2", own=_yarn),
    "Qwen3": Conversion("qwen3", own=_yarn),
    "Gemma": Conversion("gemma", plus=1.0, own=_gemma),
    "Gemma2": Conversion("gemma2", plus=1.0, own=_gemma2),
    "Gemma3": Conversion("gemma3", plus=1.0, own=_gemma3),
    "Olmo2": Conversion("olmo2"),
    "Granite": Conversion("granite", paired=True, own=_granite),
    "Phi3": Conversion("phi3", own=_phi3, more=_longrope),
    "Glm": Conversion("chatglm", own=_glm),
    "Glm4": Conversion("glm4", own=_glm4),
    "SmolLM3": Conversion("smollm3", paired=True, own=_llama),
}


def write_copy(model: Any, path: Path, conversion: Conversion, **more: Any) -> Path:
    """Write `path`. more: settings by key, over the converter's; None leaves one out."""
    from gguf import GGUFWriter

    writer = GGUFWriter(str(path), conversion.arch)
    settings = {**_shared(model.config), **conversion.own(model.config), **more}
    for key, value in settings.items():
        _add(writer, f"{conversion.arch}.{key}", value)
    tiny_models.write_gguf_tokenizer(writer)
    for name, array in _tensors(model, conversion).items():
        held = conversion.expert_format if name.endswith(conversion.quantized) else "f32"
        tiny_models.add_tensor(writer, name, array, held)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shared(config: Any) -> Settings:
    """What the converter writes for every model of text."""
    found = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": config.rope_parameters.get("rope_theta"),
    }
    if getattr(config, "head_dim", None):
        found |= {
            "attention.key_length": config.head_dim,
            "attention.value_length": config.head_dim,
        }
    return found


def _add(writer: Any, key: str, value: Any) -> None:
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    if value is not None:
        getattr(writer, f"add_{kinds[type(value)]}")(key, value)


def _tensors(model: Any, conversion: Conversion) -> dict[str, np.ndarray]:
    """The weights under their GGUF names; what is tied comes once."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    arch = next(a for a, name in MODEL_ARCH_NAMES.items() if name == conversion.arch)
    names = get_tensor_name_map(arch, model.config.num_hidden_layers)
    heads = {
        "q_proj": model.config.num_attention_heads,
        "k_proj": model.config.num_key_value_heads,
    }
    tensors = {}
    learned = [(n, b) for n, b in model.named_buffers() if "correction" in n]
    learned += model.named_parameters()
    parameters = {n: p.detach().float().numpy() for n, p in learned}
    parts = {k: v for n, array in parameters.items() for k, v in conversion.split(n, array).items()}
    for name, array in parts.items():
        if name.endswith("norm.weight") and not name.endswith(conversion.unshifted):
            array = array + np.float32(conversion.plus)
        role = name.split(".")[-2]
        if conversion.paired and role in heads:
            array = tiny_models.interleave(array, heads[role])
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        tensors[target] = np.ascontiguousarray(array)
    return tensors | conversion.more(model)
