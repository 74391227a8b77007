"""How file formats spell the tensors of a layer: role -> name, without .weight and .bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Permute = Literal["none", "ggml-rope", "pairs"]


@dataclass(frozen=True)
class Naming:
    """One family in one file format.

    outside: embedding, final_norm, lm_head. layer: prefix of a layer's tensors, with {i}. roles:
    role -> name inside a layer; with {e} where each expert has a tensor of its own. query_key: how
    rows of query and key heads lie in the file.
    norm_plus: what is added to the weights of norms, where the file holds them less that.
    optional: roles that only some files have, and that then take the place of others.
    """

    outside: Mapping[str, str]
    layer: str
    roles: Mapping[str, str]
    query_key: Permute = "none"
    norm_plus: float = 0.0
    unshifted: frozenset[str] = field(default_factory=frozenset)
    """Norms that norm_plus does not concern, by role."""
    logarithms: frozenset[str] = field(default_factory=frozenset)
    """Roles whose tensor is log(-x) of what the network takes."""
    optional: Mapping[str, str] = field(default_factory=dict)
    experts_in_turn: bool = False
    """Tensors of all experts have no ending, and rows of gate and up take turns; else gate is first
    where one tensor has both."""

    def called(self, **roles: str) -> Naming:
        """The same with some roles spelled otherwise or added."""
        return replace(self, roles={**self.roles, **roles})

    def found_in(self, tensors: Iterable[str]) -> Naming:
        """The same for one file: with the optional roles that it has a weight of."""
        weights = {name.split(".")[-2] for name in tensors if name.endswith(".weight")}
        return self.called(**{r: name for r, name in self.optional.items() if name in weights})


HF = Naming(
    outside={"embedding": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"},
    layer="model.layers.{i}.",
    roles={
        "attention_norm": "input_layernorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "query_norm": "self_attn.q_norm",
        "key_norm": "self_attn.k_norm",
        "sinks": "self_attn.sinks",
        "attention_output": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
)
HF_EXPERTS = HF.called(
    router="mlp.gate",
    choice_bias="mlp.gate.e_score_correction_bias",
    expert_gate="mlp.experts.{e}.gate_proj",
    expert_up="mlp.experts.{e}.up_proj",
    expert_down="mlp.experts.{e}.down_proj",
    shared_router="mlp.shared_expert_gate",
    shared_gate="mlp.shared_expert.gate_proj",
    shared_up="mlp.shared_expert.up_proj",
    shared_down="mlp.shared_expert.down_proj",
)
"""Qwen's mixtures of experts, and those that spell their tensors as they do."""
GGUF_FUSED_EXPERTS = {"experts_gate_up": "ffn_gate_up_exps"}
"""What llama.cpp's converter writes with --fuse-gate-up-exps."""
GGUF = Naming(
    outside={"embedding": "token_embd", "final_norm": "output_norm", "lm_head": "output"},
    layer="blk.{i}.",
    roles={
        "attention_norm": "attn_norm",
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "query_norm": "attn_q_norm",
        "key_norm": "attn_k_norm",
        "sinks": "attn_sinks.weight",
        "attention_output": "attn_output",
        "attention_post_norm": "post_attention_norm",
        "mlp_norm": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "mlp_post_norm": "post_ffw_norm",
        "router": "ffn_gate_inp",
        "choice_bias": "exp_probs_b.bias",
        "experts_gate": "ffn_gate_exps",
        "experts_up": "ffn_up_exps",
        "experts_down": "ffn_down_exps",
        "shared_router": "ffn_gate_inp_shexp",
        "shared_gate": "ffn_gate_shexp",
        "shared_up": "ffn_up_shexp",
        "shared_down": "ffn_down_shexp",
    },
    optional={"query_key_value": "attn_qkv", **GGUF_FUSED_EXPERTS},
)
"""Some files have query, key and value in one tensor, or gate and up of all experts."""
GGUF_PAIRED = replace(GGUF, query_key="ggml-rope")
"""Families whose query and key rows ggml stores in interleaved pairs."""
