"""What a model is, whatever its family and file: sizes, and what its layers do. Checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anychip.model.errors import CheckpointError
from anychip.model.layer_pattern import MOST_LAYERS
from anychip.model.rope_config import RopeConfig

MOST_POSITIONS = 1 << 26
MOST_HEAD = 1 << 14

_LIMITS = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "layers": MOST_LAYERS,
    "heads": 1 << 14,
    "kv_heads": 1 << 14,
    "head_dim": MOST_HEAD,
    "context_length": MOST_POSITIONS,
}
QkNorm = Literal["none", "head", "all"]


@dataclass(frozen=True)
class LayerConfig:
    """What differs from layer to layer.

    window: positions that a token sees, itself included; 0: all. rope: index into the model's
    `ropes`; None: queries and keys are not rotated. experts: its MLP is a mixture of experts.
    recurrent: it keeps a state (`ModelConfig.delta`) and no keys and values.
    """

    window: int = 0
    rope: int | None = 0
    experts: bool = False
    recurrent: bool = False


PLAIN_LAYER = LayerConfig()


@dataclass(frozen=True)
class ExpertsConfig:
    """A mixture of experts. count: experts, of which a token uses `used`, each `inner` wide.

    scoring, renormalize, groups, groups_kept, group_score, scale: attributes of `route_experts`.
    router_bias: added to the router's logits. choice_bias: a bias an expert helps to choose and
    weighs nothing. bias: of every expert's linears. shared: width of the MLP that every token uses
    besides; 0: there is none. shared_gate: its result is multiplied by the sigmoid of a score of
    the token. alpha, limit: of the activation swiglu_clamp. transposed: the file has the matrices
    of experts as [K, N].
    """

    count: int
    used: int
    inner: int
    scoring: str = "softmax"
    renormalize: bool = False
    groups: int = 1
    groups_kept: int = 1
    group_score: str = "max"
    scale: float = 1.0
    router_bias: bool = False
    bias: bool = False
    shared: int = 0
    shared_gate: bool = False
    choice_bias: bool = False
    alpha: float = 0.0
    limit: float = 0.0
    transposed: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.used <= self.count <= 1 << 14:
            raise CheckpointError(
                f"{self.used} of {self.count} experts a token; 1 to all of them, and at most "
                f"{1 << 14} in all, are possible"
            )
        if self.groups < 1 or self.count % self.groups:
            raise CheckpointError(f"{self.count} experts do not divide into {self.groups} groups")
        if not 1 <= self.groups_kept <= self.groups:
            raise CheckpointError(f"{self.groups_kept} of {self.groups} groups of experts are kept")
        kept = self.count // self.groups * self.groups_kept
        if self.used > kept:
            raise CheckpointError(
                f"{self.used} experts a token, but its groups have {kept}: no choice is left"
            )


@dataclass(frozen=True)
class LatentConfig:
    """Latent attention: see layers/latent.py. A cached vector is `rank` + `rotated` elements.

    nope, value: of a head's key that is not rotated, and of its value. query_rank: elements that
    queries are compressed to; 0: they are not.
    """

    rank: int
    rotated: int
    nope: int
    value: int
    query_rank: int = 0

    def __post_init__(self) -> None:
        for name in ("rank", "rotated", "nope", "value"):
            if not 1 <= getattr(self, name) <= 1 << 14:
                raise CheckpointError(f"latent attention: {name} is {getattr(self, name)}")


@dataclass(frozen=True)
class DeltaConfig:
    """Layers of the gated delta rule: see layers/delta.py. width: inputs that the convolution
    before it sums, the token's own included."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int

    def __post_init__(self) -> None:
        for name in ("key_heads", "value_heads", "key_dim", "value_dim", "width"):
            if not 1 <= getattr(self, name) <= 1 << 14:
                raise CheckpointError(f"gated delta rule: {name} is {getattr(self, name)}")
        if self.value_heads % self.key_heads or self.width < 2:
            raise CheckpointError(
                f"gated delta rule: {self.value_heads} value heads share {self.key_heads} key "
                f"heads, and the convolution is {self.width} wide"
            )

    @property
    def keys(self) -> int:
        """Elements of all key heads."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Elements of all value heads."""
        return self.value_heads * self.value_dim


@dataclass(frozen=True)
class ModelConfig:
    """A model's sizes, in elements. dtype: the checkpoint's plain dtype, or "quantized".

    architecture: the family's name. ropes: the main one, then those that some layers have instead.
    layer_configs: one a layer; empty: all are plain. qk_norm: queries and keys are normed head by
    head, or over all heads at once. pre_norms, post_norms: before and behind attention and MLP.
    attention_scale: of q.k; 0: head_dim ** -0.5. attention_softcap, logit_softcap: 0: none.
    sinks: each head has a score that takes weight and adds nothing. output_gate: what a head mixes
    is multiplied by the sigmoid of as many elements beside its query.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    ropes: tuple[RopeConfig, ...]
    context_length: int
    tie_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    activation: str = "silu"
    qk_norm: QkNorm = "none"
    pre_norms: bool = True
    post_norms: bool = False
    attention_scale: float = 0.0
    attention_softcap: float = 0.0
    logit_softcap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    sinks: bool = False
    output_gate: bool = False
    layer_configs: tuple[LayerConfig, ...] = ()
    experts: ExpertsConfig | None = None
    latent: LatentConfig | None = None
    delta: DeltaConfig | None = None
    dtype: str = "float32"
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None

    def __post_init__(self) -> None:
        self._check_sizes()
        self._check_layers()
        if not 0 <= self.norm_eps < 1:
            raise CheckpointError(f"the norm's epsilon is {self.norm_eps}; 0 to 1 are possible")
        for token in (*self.eos_ids, *(() if self.bos_id is None else (self.bos_id,))):
            if not 0 <= token < self.vocab_size:
                raise CheckpointError(
                    f"special token id {token} is outside the vocabulary of {self.vocab_size}"
                )

    @property
    def rope(self) -> RopeConfig:
        """The main one."""
        return self.ropes[0]

    @property
    def score_scale(self) -> float:
        """The full multiplier of q.k."""
        return self.attention_scale or self.head_dim**-0.5

    def cut(self, layers: int) -> ModelConfig:
        """The model of its first layers alone."""
        return replace(self, layers=layers, layer_configs=self.layer_configs[:layers])

    @property
    def cached_layers(self) -> tuple[int, ...]:
        """Layers that keep keys and values."""
        return tuple(i for i in range(self.layers) if not self.layer(i).recurrent)

    @property
    def recurrent_layers(self) -> tuple[int, ...]:
        """Layers that keep a state."""
        return tuple(i for i in range(self.layers) if self.layer(i).recurrent)

    def layer(self, i: int) -> LayerConfig:
        """What is particular to layer i."""
        return self.layer_configs[i] if self.layer_configs else PLAIN_LAYER

    def _check_sizes(self) -> None:
        for name, limit in _LIMITS.items():
            value = getattr(self, name)
            if not 0 < value <= limit:
                raise CheckpointError(f"{name} is {value}; 1 to {limit} are possible")
        if self.context_length == 1:
            raise CheckpointError("context_length is 1; a prompt and its answer take 2 or more")
        if self.heads % self.kv_heads:
            raise CheckpointError(
                f"{self.heads} attention heads cannot be shared by {self.kv_heads} key/value heads"
            )
        for rope in self.ropes:
            if rope.rotary_dim > self.head_dim:
                raise CheckpointError(
                    f"rope rotates {rope.rotary_dim} elements of a head of {self.head_dim}"
                )

    def _check_layers(self) -> None:
        if self.layer_configs and len(self.layer_configs) != self.layers:
            raise CheckpointError(
                f"{len(self.layer_configs)} layers are described, the model has {self.layers}"
            )
        for layer in self.layer_configs:
            if layer.window < 0:
                raise CheckpointError(f"a window of {layer.window} positions")
            if layer.rope is not None and not 0 <= layer.rope < len(self.ropes):
                raise CheckpointError(f"a layer has rope {layer.rope}, the model {len(self.ropes)}")
            if layer.recurrent and self.delta is None:
                raise CheckpointError("a layer keeps a state, but the model does not say which")
            if layer.experts and self.experts is None:
                raise CheckpointError("a layer has experts, but the model does not say how many")
