"""Which tensors of a checkpoint make up each weight of a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from anychip.contract.tensor import Shape
from anychip.contract.weights import WeightUse
from anychip.model.config import ModelConfig

Permute = Literal["none", "ggml-rope"]
LINEAR = frozenset({WeightUse.LINEAR})


@dataclass(frozen=True)
class WeightSource:
    """A weight of the network and the tensors that are stacked along N to make it.

    uses: None for a vector (norm or bias), which is handed over as plain float32. shapes: what
    each part must have by the model's config. permute, one a part: "ggml-rope" where the rows of
    each head lie in interleaved pairs and are to be put into two halves.
    """

    name: str
    uses: frozenset[WeightUse] | None
    parts: tuple[str, ...]
    shapes: tuple[Shape, ...]
    permute: tuple[Permute, ...]


@dataclass(frozen=True)
class Naming:
    """How a file format spells its tensors. `layer` has {i}; inner names lack .weight and .bias."""

    embedding: str
    final_norm: str
    lm_head: str
    layer: str
    attention_norm: str
    query: str
    key: str
    value: str
    attention_output: str
    mlp_norm: str
    gate: str
    up: str
    down: str
    query_key: Permute


HF_LLAMA = Naming(
    embedding="model.embed_tokens",
    final_norm="model.norm",
    lm_head="lm_head",
    layer="model.layers.{i}.",
    attention_norm="input_layernorm",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    attention_output="self_attn.o_proj",
    mlp_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
    query_key="none",
)
GGUF_LLAMA = Naming(
    embedding="token_embd",
    final_norm="output_norm",
    lm_head="output",
    layer="blk.{i}.",
    attention_norm="attn_norm",
    query="attn_q",
    key="attn_k",
    value="attn_v",
    attention_output="attn_output",
    mlp_norm="ffn_norm",
    gate="ffn_gate",
    up="ffn_up",
    down="ffn_down",
    query_key="ggml-rope",
)
NAMINGS = {("llama", "hf"): HF_LLAMA, ("llama", "gguf"): GGUF_LLAMA}
"""(ModelConfig.architecture, file format) -> how its tensors are called."""


def weight_sources(config: ModelConfig, naming: Naming) -> tuple[WeightSource, ...]:
    """Every weight that the network needs, in the order in which it meets them."""
    uses = {WeightUse.EMBEDDING, WeightUse.LM_HEAD} if config.tie_embeddings else None
    table = (config.vocab_size, config.hidden_size)
    sources = [
        _matrix("embedding", naming.embedding, table, uses or {WeightUse.EMBEDDING}),
    ]
    for i in range(config.layers):
        sources += _layer(config, naming, i)
    sources.append(_vector("final_norm", naming.final_norm, config.hidden_size))
    if not config.tie_embeddings:
        sources.append(_matrix("lm_head", naming.lm_head, table, {WeightUse.LM_HEAD}))
    return tuple(sources)


@dataclass(frozen=True)
class _Projection:
    """A linear of a layer: its canonical name, its parts and their rows."""

    name: str
    parts: tuple[str, ...]
    rows: tuple[int, ...]
    columns: int
    permute: tuple[Permute, ...]
    bias: bool

    def sources(self, prefix: str, canonical: str) -> Iterator[WeightSource]:
        yield WeightSource(
            canonical + self.name,
            LINEAR,
            tuple(f"{prefix}{part}.weight" for part in self.parts),
            tuple((rows, self.columns) for rows in self.rows),
            self.permute,
        )
        if self.bias:
            yield WeightSource(
                f"{canonical}{self.name}_bias",
                None,
                tuple(f"{prefix}{part}.bias" for part in self.parts),
                tuple((rows,) for rows in self.rows),
                self.permute,
            )


def _layer(config: ModelConfig, naming: Naming, i: int) -> Iterator[WeightSource]:
    prefix, canonical, hidden = naming.layer.format(i=i), f"layers.{i}.", config.hidden_size
    attention, mlp = _attention(config, naming), _mlp(config, naming)
    yield _vector(f"{canonical}attention_norm", prefix + naming.attention_norm, hidden)
    for projection in attention:
        yield from projection.sources(prefix, canonical)
    yield _vector(f"{canonical}mlp_norm", prefix + naming.mlp_norm, hidden)
    for projection in mlp:
        yield from projection.sources(prefix, canonical)


def _attention(config: ModelConfig, naming: Naming) -> tuple[_Projection, _Projection]:
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return (
        _Projection(
            "qkv",
            (naming.query, naming.key, naming.value),
            (query, key, key),
            config.hidden_size,
            (naming.query_key, naming.query_key, "none"),
            config.attention_bias,
        ),
        _Projection(
            "attention_output",
            (naming.attention_output,),
            (config.hidden_size,),
            query,
            ("none",),
            config.attention_bias,
        ),
    )


def _mlp(config: ModelConfig, naming: Naming) -> tuple[_Projection, _Projection]:
    hidden, inner = config.hidden_size, config.intermediate_size
    none: Permute = "none"
    return (
        _Projection(
            "gate_up",
            (naming.gate, naming.up),
            (inner, inner),
            hidden,
            (none, none),
            config.mlp_bias,
        ),
        _Projection("down", (naming.down,), (hidden,), inner, (none,), config.mlp_bias),
    )


def _matrix(name: str, part: str, shape: Shape, uses: set[WeightUse]) -> WeightSource:
    return WeightSource(name, frozenset(uses), (f"{part}.weight",), (shape,), ("none",))


def _vector(name: str, part: str, size: int) -> WeightSource:
    return WeightSource(name, None, (f"{part}.weight",), ((size,),), ("none",))
