"""Which tensors of a checkpoint make up each weight of a network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from anychip.contract.tensor import Shape
from anychip.contract.weights import WeightUse
from anychip.model.config import ModelConfig
from anychip.model.naming import Naming, Permute

LINEAR = frozenset({WeightUse.LINEAR})


@dataclass(frozen=True)
class Part:
    """A tensor of the file, or some rows of it.

    shape: what the file must have. rows: (first, count) of its rows, all but its last dimension
    counted as rows; None: all. transposed: the file has each matrix [N, K] as [K, N]; rows are N
    then. permute: "ggml-rope" where the rows of each head lie in interleaved pairs and are to be
    put into two halves, "pairs" where all that is taken does: gate and up of an expert, say; of a
    constant its elements. logarithm: the file has log(-x) of each element. plus: added to each.
    """

    tensor: str
    shape: Shape
    rows: tuple[int, int] | None = None
    permute: Permute = "none"
    plus: float = 0.0
    transposed: bool = False
    logarithm: bool = False

    @property
    def taken(self) -> Shape:
        """Its own shape; (rows, K) where rows are taken."""
        shape = self.shape
        if self.transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        return shape if self.rows is None else (self.rows[1], shape[-1])


@dataclass(frozen=True)
class WeightSource:
    """A weight of the network and the parts that are stacked along N to make it.

    uses: None for what operators read as a plain tensor (norms, biases), of `shape`: float32, or
    the activation dtype where `activation`.
    """

    name: str
    uses: frozenset[WeightUse] | None
    parts: tuple[Part, ...]
    shape: Shape
    activation: bool = False


def matrix(name: str, uses: frozenset[WeightUse], *parts: Part) -> WeightSource:
    """A matrix [N, K] that the chip packs."""
    rows = sum(math.prod(part.taken[:-1]) for part in parts)
    return WeightSource(name, uses, parts, (rows, parts[0].taken[-1]))


def constant(name: str, shape: Shape, *parts: Part, activation: bool = False) -> WeightSource:
    """A tensor that operators read as it is."""
    return WeightSource(name, None, parts, shape, activation)


@dataclass(frozen=True)
class LayerTensors:
    """Layer i of a file: sources by role."""

    config: ModelConfig
    naming: Naming
    i: int

    @property
    def canonical(self) -> str:
        """Prefix of the layer's weights in the network."""
        return f"layers.{self.i}."

    def tensor(self, role: str) -> str:
        """The name in the file, without its ending."""
        return self.naming.layer.format(i=self.i) + self.naming.roles[role]

    def has(self, role: str) -> bool:
        """Whether the file format has such a tensor."""
        return role in self.naming.roles

    def norm(self, role: str, size: int) -> WeightSource:
        """A norm's weight."""
        plus = 0.0 if role in self.naming.unshifted else self.naming.norm_plus
        part = Part(f"{self.tensor(role)}.weight", (size,), plus=plus)
        return constant(self.canonical + role, (size,), part)

    def linear(
        self, name: str, rows: dict[str, int], columns: int, *, bias: bool = False
    ) -> Iterator[WeightSource]:
        """A linear whose parts are stacked. rows: role -> N of that part."""
        parts = [
            Part(f"{self.tensor(r)}.weight", (n, columns), permute=self._permute(r))
            for r, n in rows.items()
        ]
        yield matrix(self.canonical + name, LINEAR, *parts)
        if bias:
            biases = [
                Part(f"{self.tensor(r)}.bias", (n,), permute=self._permute(r))
                for r, n in rows.items()
            ]
            yield constant(f"{self.canonical}{name}_bias", (sum(rows.values()),), *biases)

    def _permute(self, role: str) -> Permute:
        return self.naming.query_key if role in ("query", "key") else "none"


def decoder_sources(config: ModelConfig, naming: Naming) -> tuple[WeightSource, ...]:
    """Every weight of a decoder with attention and a gated MLP in each layer, as it meets them."""
    found = [embedding(config, naming)]
    for i in range(config.layers):
        layer = LayerTensors(config, naming, i)
        found += attention_sources(layer)
        found += mlp_sources(layer)
    return (*found, *head_sources(config, naming))


def embedding(config: ModelConfig, naming: Naming) -> WeightSource:
    """The table of token vectors, which may be the output's too."""
    uses = {WeightUse.EMBEDDING} | ({WeightUse.LM_HEAD} if config.tie_embeddings else set())
    shape = (config.vocab_size, config.hidden_size)
    return matrix(
        "embedding", frozenset(uses), Part(f"{naming.outside['embedding']}.weight", shape)
    )


def head_sources(config: ModelConfig, naming: Naming) -> Iterator[WeightSource]:
    """The last norm and the output."""
    size = config.hidden_size
    last = Part(f"{naming.outside['final_norm']}.weight", (size,), plus=naming.norm_plus)
    yield constant("final_norm", (size,), last)
    if not config.tie_embeddings:
        head = Part(f"{naming.outside['lm_head']}.weight", (config.vocab_size, size))
        yield matrix("lm_head", frozenset({WeightUse.LM_HEAD}), head)


def attention_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    """Norms, query, key and value in one matrix, the output projection."""
    config, hidden = layer.config, layer.config.hidden_size
    query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
    if config.pre_norms:
        yield layer.norm("attention_norm", hidden)
    rows = {"query": query, "key": key, "value": key}
    if layer.has("query_key_value"):
        rows = {"query_key_value": query + 2 * key}
    yield from layer.linear("qkv", rows, hidden, bias=config.attention_bias)
    if config.qk_norm != "none":
        whole = config.qk_norm == "all"
        yield layer.norm("query_norm", query if whole else config.head_dim)
        yield layer.norm("key_norm", key if whole else config.head_dim)
    if config.sinks:
        sinks = Part(layer.tensor("sinks"), (config.heads,))
        yield constant(f"{layer.canonical}sinks", (config.heads,), sinks)
    output = {"attention_output": hidden}
    yield from layer.linear("attention_output", output, query, bias=config.output_bias)
    if config.post_norms:
        yield layer.norm("attention_post_norm", hidden)


def mlp_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    """Norms, gate and up in one matrix, down."""
    config = layer.config
    hidden, inner = config.hidden_size, config.intermediate_size
    if config.pre_norms:
        yield layer.norm("mlp_norm", hidden)
    rows = {"gate_up": 2 * inner} if layer.has("gate_up") else {"gate": inner, "up": inner}
    yield from layer.linear("gate_up", rows, hidden, bias=config.mlp_bias)
    yield from layer.linear("down", {"down": hidden}, inner, bias=config.mlp_bias)
    if config.post_norms:
        yield layer.norm("mlp_post_norm", hidden)
