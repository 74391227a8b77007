"""GLM-4: half of each head is rotated, by neighbours; from 0414 on with norms behind too."""

from __future__ import annotations

from collections.abc import Callable

from anychip.model.config import ModelConfig
from anychip.model.family import Family
from anychip.model.fields import Fields, head_size
from anychip.model.gguf_config import gguf_config, gguf_rope
from anychip.model.hf_config import hf_config
from anychip.model.hf_rope import hf_rope
from anychip.model.naming import GGUF, HF

_SHARE = 0.5
"""Of a head that is rotated, where the file does not say."""


def _hf(name: str, *, post_norms: bool) -> Callable[[Fields], ModelConfig]:
    def read_config(read: Fields) -> ModelConfig:
        hidden, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
        size = read.integer("head_dim", head_size(hidden, heads, read.settings.get("head_dim")))
        return hf_config(
            read,
            name,
            ropes=(hf_rope(read, size, interleaved=True, share=_SHARE),),
            attention_bias=read.flag("attention_bias", True),
            post_norms=post_norms,
        )

    return read_config


def _gguf(name: str, *, post_norms: bool) -> Callable[[Fields], ModelConfig]:
    def read_config(read: Fields) -> ModelConfig:
        hidden, heads = read.integer("embedding_length"), read.integer("attention.head_count")
        key = read.settings.get(f"{read.prefix}attention.key_length")
        size = read.integer("attention.key_length", head_size(hidden, heads, key))
        return gguf_config(
            read, name, ropes=(gguf_rope(read, size, interleaved=True),), post_norms=post_norms
        )

    return read_config


GLM = Family(
    name="glm",
    title="GLM-4-9B (chat-hf)",
    hf_class="GlmForCausalLM",
    hf_type="glm",
    hf_config=_hf("glm", post_norms=False),
    hf_names=HF.called(gate_up="mlp.gate_up_proj"),
    gguf="chatglm",
    gguf_config=_gguf("glm", post_norms=False),
    gguf_names=GGUF.called(gate_up="ffn_up"),
)
GLM4 = Family(
    name="glm4",
    title="GLM-4-0414, GLM-Z1",
    hf_class="Glm4ForCausalLM",
    hf_type="glm4",
    hf_config=_hf("glm4", post_norms=True),
    hf_names=HF.called(
        gate_up="mlp.gate_up_proj",
        attention_post_norm="post_self_attn_layernorm",
        mlp_post_norm="post_mlp_layernorm",
    ),
    gguf="glm4",
    gguf_config=_gguf("glm4", post_norms=True),
    gguf_names=GGUF.called(gate_up="ffn_up"),
)
