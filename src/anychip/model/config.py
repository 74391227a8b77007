"""What a model is, read from config.json or from GGUF metadata, and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anychip.contract.formats import PLAIN_FORMATS
from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported

ROPE_KINDS = ("default", "linear", "llama3")
_LIMITS = {
    "vocab_size": 1 << 24,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "layers": 1 << 12,
    "heads": 1 << 14,
    "kv_heads": 1 << 14,
    "head_dim": 1 << 14,
    "context_length": 1 << 26,
}


@dataclass(frozen=True)
class Family:
    """A model family. name: ours; hf: config.json's class and type; gguf: general.architecture."""

    name: str
    hf_class: str
    hf_type: str
    gguf: str


FAMILIES = (Family("llama", "LlamaForCausalLM", "llama", "llama"),)
"""One row a family; names.py has its tensors, and a module of its name the network."""


@dataclass(frozen=True)
class RopeConfig:
    """Rotary embedding. theta: base. rotary_dim: rotated elements of a head (even).

    linear: frequencies are divided by `factor`. llama3: long wavelengths are divided by `factor`,
    those between original_context / low and / high_freq_factor in part. factors: one divisor a
    frequency, as GGUF stores them; they replace `kind`. interleaved: pairs are (2i, 2i + 1).
    """

    theta: float
    rotary_dim: int
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_context: int = 0
    interleaved: bool = False
    factors: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in ROPE_KINDS:
            raise unsupported("rope scaling", self.kind, ROPE_KINDS)
        if self.rotary_dim < 2 or self.rotary_dim % 2:
            raise CheckpointError(f"rope: {self.rotary_dim} rotated elements; needs an even number")
        for name in ("theta", "factor"):
            _check_number(f"rope {name}", getattr(self, name))
        if self.kind == "llama3":
            self._check_llama3()
        if self.factors is not None:
            self._check_factors(self.factors)

    def _check_llama3(self) -> None:
        _check_number("rope low_freq_factor", self.low_freq_factor)
        _check_number("rope high_freq_factor", self.high_freq_factor)
        if self.high_freq_factor <= self.low_freq_factor or self.original_context < 1:
            raise CheckpointError(
                "rope: llama3 scaling needs high_freq_factor above low_freq_factor and a positive "
                f"original context; has {self.high_freq_factor}, {self.low_freq_factor} and "
                f"{self.original_context}"
            )

    def _check_factors(self, factors: tuple[float, ...]) -> None:
        if len(factors) != self.rotary_dim // 2:
            raise CheckpointError(
                f"rope: {len(factors)} frequency factors, {self.rotary_dim // 2} are needed"
            )
        for factor in factors:
            _check_number("a rope frequency factor", factor)


@dataclass(frozen=True)
class ModelConfig:
    """A model's sizes, in elements. dtype: the checkpoint's plain dtype, or "quantized"."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    context_length: int
    tie_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    dtype: str = "float32"
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None

    def __post_init__(self) -> None:
        for name, limit in _LIMITS.items():
            value = getattr(self, name)
            if not 0 < value <= limit:
                raise CheckpointError(f"{name} is {value}; 1 to {limit} are possible")
        if self.heads % self.kv_heads:
            raise CheckpointError(
                f"{self.heads} attention heads cannot be shared by {self.kv_heads} key/value heads"
            )
        if self.rope.rotary_dim > self.head_dim:
            raise CheckpointError(
                f"rope rotates {self.rope.rotary_dim} elements of a head of {self.head_dim}"
            )
        if not 0 <= self.norm_eps < 1:
            raise CheckpointError(f"the norm's epsilon is {self.norm_eps}; 0 to 1 are possible")
        for token in (*self.eos_ids, *(() if self.bos_id is None else (self.bos_id,))):
            if not 0 <= token < self.vocab_size:
                raise CheckpointError(
                    f"special token id {token} is outside the vocabulary of {self.vocab_size}"
                )

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> ModelConfig:
        """From a parsed config.json, of transformers 4 or 5. Raises CheckpointError."""
        family = _hf_family(settings)
        _refuse_hf_features(settings)
        read = _Fields(settings, "config.json")
        hidden, heads = read.integer("hidden_size"), read.integer("num_attention_heads")
        head_dim = read.integer("head_dim", _divide(hidden, heads, settings.get("head_dim")))
        context = read.integer("max_position_embeddings")
        return cls(
            architecture=family.name,
            vocab_size=read.integer("vocab_size"),
            hidden_size=hidden,
            intermediate_size=read.integer("intermediate_size"),
            layers=read.integer("num_hidden_layers"),
            heads=heads,
            kv_heads=read.integer("num_key_value_heads", heads),
            head_dim=head_dim,
            norm_eps=read.number("rms_norm_eps", 1e-6),
            rope=_hf_rope(settings, head_dim, context),
            context_length=context,
            tie_embeddings=read.flag("tie_word_embeddings"),
            attention_bias=read.flag("attention_bias"),
            mlp_bias=read.flag("mlp_bias"),
            dtype=_plain_dtype(settings),
            eos_ids=_token_ids(settings, "eos_token_id"),
            bos_id=next(iter(_token_ids(settings, "bos_token_id")), None),
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> ModelConfig:
        """From GGUF metadata. Raises CheckpointError.

        What only the tensors tell (tied, biases, dtype, rope factors) is left at its default.
        """
        family = _gguf_family(metadata)
        prefix = f"{family.gguf}."
        read = _Fields(metadata, "GGUF metadata", prefix)
        _refuse_gguf_features(metadata, prefix)
        hidden, heads = read.integer("embedding_length"), read.integer("attention.head_count")
        fallback = _divide(hidden, heads, metadata.get(f"{prefix}attention.key_length"))
        head_dim = read.integer("attention.key_length", fallback)
        _check_head_dims(read, head_dim)
        return cls(
            architecture=family.name,
            vocab_size=read.integer("vocab_size", _token_count(metadata)),
            hidden_size=hidden,
            intermediate_size=read.integer("feed_forward_length"),
            layers=read.integer("block_count"),
            heads=heads,
            kv_heads=read.integer("attention.head_count_kv", heads),
            head_dim=head_dim,
            norm_eps=read.number("attention.layer_norm_rms_epsilon"),
            rope=_gguf_rope(read, head_dim),
            context_length=read.integer("context_length"),
            eos_ids=_token_ids(metadata, "tokenizer.ggml.eos_token_id"),
            bos_id=next(iter(_token_ids(metadata, "tokenizer.ggml.bos_token_id")), None),
        )


@dataclass(frozen=True)
class _Fields:
    """Typed access to settings that somebody else wrote."""

    settings: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if type(value) is not int:
            raise self._error(key, value, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self._error(key, value, "a number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key, False)
        if type(value) is not bool:
            raise self._error(key, value, "true or false")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self.settings.get(self.prefix + key)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"{self.origin} has no '{self.prefix}{key}'")
        return value

    def _error(self, key: str, value: Any, needed: str) -> CheckpointError:
        shown = f"{value!r:.60}"
        return CheckpointError(f"{self.origin}: '{self.prefix}{key}' is {shown}, not {needed}")


def _check_number(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise CheckpointError(f"{name} is {value}; a positive number is needed")


def _divide(hidden: int, heads: int, given: Any) -> int | None:
    """The head size where the checkpoint does not give it."""
    if given is not None:
        return None
    if heads < 1 or hidden % heads:
        raise CheckpointError(f"a hidden size of {hidden} does not divide into {heads} heads")
    return hidden // heads


def _token_ids(settings: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = settings.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(v) is not int for v in values):
        raise CheckpointError(f"'{key}' is {value!r:.60}, not a token id or a list of them")
    return tuple(dict.fromkeys(values))


def _hf_family(settings: Mapping[str, Any]) -> Family:
    names = settings.get("architectures") or [settings.get("model_type")]
    names = names if isinstance(names, list) else [names]
    for family in FAMILIES:
        if names[0] in (family.hf_class, family.hf_type):
            return family
    raise unsupported("architecture", names[0], (f.hf_class for f in FAMILIES))


def _refuse_hf_features(settings: Mapping[str, Any]) -> None:
    if settings.get("quantization_config"):
        described = settings["quantization_config"]
        method = described.get("quant_method") if isinstance(described, dict) else described
        raise unsupported("quantization in a folder", method, PLAIN_FORMATS)
    activation = settings.get("hidden_act", "silu")
    if activation != "silu":
        raise unsupported("activation", activation, ("silu",))
    if settings.get("sliding_window") and settings.get("use_sliding_window", True):
        raise UnsupportedModel(
            f"sliding-window attention (window {settings['sliding_window']}) is not supported"
        )


def _plain_dtype(settings: Mapping[str, Any]) -> str:
    name = settings.get("dtype") or settings.get("torch_dtype")
    return str(name) if name in PLAIN_FORMATS else "float32"


def _hf_rope(settings: Mapping[str, Any], head_dim: int, context: int) -> RopeConfig:
    """transformers 5 writes rope_parameters, older ones rope_scaling and rope_theta."""
    scaling = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if not isinstance(scaling, dict) or any(isinstance(v, dict) for v in scaling.values()):
        raise UnsupportedModel("rope settings that differ by layer are not supported")
    outer = {k: settings.get(k) for k in ("rope_theta", "partial_rotary_factor")}
    read = _Fields({**outer, **scaling}, "config.json rope settings")
    if read.number("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel("rotating only a part of a head is not supported")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise unsupported("rope scaling", kind, ROPE_KINDS)
    theta = read.number("rope_theta", 10000.0)
    if kind == "default":
        return RopeConfig(theta, head_dim)
    if kind == "linear":
        return RopeConfig(theta, head_dim, kind, read.number("factor"))
    return RopeConfig(
        theta,
        head_dim,
        kind,
        factor=read.number("factor"),
        low_freq_factor=read.number("low_freq_factor"),
        high_freq_factor=read.number("high_freq_factor"),
        original_context=read.integer("original_max_position_embeddings", context),
    )


def _gguf_family(metadata: Mapping[str, Any]) -> Family:
    name = metadata.get("general.architecture")
    for family in FAMILIES:
        if name == family.gguf:
            return family
    raise unsupported("architecture", name, (f.gguf for f in FAMILIES))


def _token_count(metadata: Mapping[str, Any]) -> int | None:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, list) else None


def _refuse_gguf_features(metadata: Mapping[str, Any], prefix: str) -> None:
    """Keys that change the network; each is harmless at the values given here."""
    neutral = {
        "expert_count": (0,),
        "attention.sliding_window": (0,),
        "logit_scale": (0.0, 1.0),
        "embedding_scale": (0.0, 1.0),
        "residual_scale": (0.0, 1.0),
        "attention.scale": (0.0,),
        "attention.clamp_kqv": (0.0,),
    }
    for key, values in neutral.items():
        value = metadata.get(prefix + key, values[0])
        if value not in values:
            raise UnsupportedModel(f"'{prefix}{key}' = {value!r:.60} is not supported")


def _check_head_dims(read: _Fields, head_dim: int) -> None:
    """Keys, values and the rotated part all span the whole head."""
    for key in ("attention.value_length", "rope.dimension_count"):
        value = read.integer(key, head_dim)
        if value != head_dim:
            raise UnsupportedModel(
                f"'{read.prefix}{key}' = {value} differs from the head size {head_dim}, "
                "which is not supported"
            )


def _gguf_rope(read: _Fields, head_dim: int) -> RopeConfig:
    theta = read.number("rope.freq_base", 10000.0)
    kind = read.settings.get(f"{read.prefix}rope.scaling.type", "none")
    old = read.settings.get(f"{read.prefix}rope.scale_linear")
    factor = read.number("rope.scaling.factor", read.number("rope.scale_linear", 1.0))
    if kind == "linear" or (kind == "none" and old is not None and factor != 1.0):
        return RopeConfig(theta, head_dim, "linear", factor)
    if kind != "none":
        raise unsupported("rope scaling", kind, ("none", "linear"))
    return RopeConfig(theta, head_dim)
