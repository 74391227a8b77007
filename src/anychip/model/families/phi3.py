"""Phi-3, Phi-3.5 and Phi-4 (mini too): one matrix for query, key and value, one for gate and up."""

from __future__ import annotations

from anychip.model.config import ModelConfig
from anychip.model.errors import unsupported
from anychip.model.family import Family
from anychip.model.fields import Fields
from anychip.model.gguf_config import gguf_config, gguf_layers, gguf_window
from anychip.model.hf_config import hf_config, hf_windows, windowed_layers
from anychip.model.naming import GGUF, HF

_ROPES = ("default", "longrope")


def _from_hf(read: Fields) -> ModelConfig:
    config = hf_config(read, "phi3", layer_configs=windowed_layers(hf_windows(read)))
    if config.rope.kind not in _ROPES:
        raise unsupported("rope scaling of Phi-3", config.rope.kind, _ROPES)
    return config


def _from_gguf(read: Fields) -> ModelConfig:
    window = gguf_window(read)
    layers = windowed_layers((window,) * gguf_layers(read))
    takes = frozenset({"attention.sliding_window"})
    return gguf_config(read, "phi3", takes=takes, layer_configs=layers)


PHI3 = Family(
    name="phi3",
    title="Phi-3, Phi-3.5, Phi-4, Phi-4-mini",
    hf_class="Phi3ForCausalLM",
    hf_type="phi3",
    hf_config=_from_hf,
    hf_names=HF.called(query_key_value="self_attn.qkv_proj", gate_up="mlp.gate_up_proj"),
    gguf="phi3",
    gguf_config=_from_gguf,
    gguf_names=GGUF.called(query_key_value="attn_qkv", gate_up="ffn_up"),
)
