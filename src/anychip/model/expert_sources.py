"""Which tensors of a checkpoint make up a mixture of experts: all its experts in two matrices.

Each expert's rows are parts of their own, in the order in which the network wants them (gate, then
up), so that a file is read, converted and packed expert by expert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anychip.contract.weights import WeightUse
from anychip.model.config import ExpertsConfig, ModelConfig
from anychip.model.naming import Naming, Permute
from anychip.model.sources import (
    LayerTensors,
    Part,
    WeightSource,
    attention_sources,
    constant,
    embedding,
    head_sources,
    matrix,
    mlp_sources,
)

EXPERTS = frozenset({WeightUse.EXPERTS})
LayerSources = Callable[[LayerTensors], Iterator[WeightSource]]
ROUTER = frozenset({WeightUse.LM_HEAD})
"""A router's logits are float32, as an output's are."""


def sparse_sources(
    config: ModelConfig, naming: Naming, *, mixing: LayerSources = attention_sources
) -> tuple[WeightSource, ...]:
    """Every weight of a decoder, some or all of whose MLPs are mixtures of experts.

    mixing: of what stands before a layer's MLP.
    """
    found = [embedding(config, naming)]
    for i in range(config.layers):
        layer = LayerTensors(config, naming, i)
        found += mixing(layer)
        found += expert_sources(layer) if config.layer(i).experts else mlp_sources(layer)
    return (*found, *head_sources(config, naming))


def expert_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    """Norm, router, the experts' gate and up, their down, the MLP that every token uses."""
    config, hidden = layer.config, layer.config.hidden_size
    experts = experts_of(config)
    if config.pre_norms:
        yield layer.norm("mlp_norm", hidden)
    yield from router_sources(layer, experts)
    fused, inner = layer.has("experts_gate_up"), experts.inner
    rows = {"gate_up": 2 * inner} if fused else {"gate": inner, "up": inner}
    yield from _stacked(layer, "experts_gate_up", rows, hidden)
    yield from _stacked(layer, "experts_down", {"down": hidden}, inner)
    yield from shared_sources(layer, experts)
    if config.post_norms:
        yield layer.norm("mlp_post_norm", hidden)


def experts_of(config: ModelConfig) -> ExpertsConfig:
    """The mixture of a model that has one."""
    assert config.experts is not None
    return config.experts


def router_sources(layer: LayerTensors, experts: ExpertsConfig) -> Iterator[WeightSource]:
    """A score of each expert, and what it is biased by."""
    name, count = layer.tensor("router"), experts.count
    shape = (count, layer.config.hidden_size)
    yield matrix(f"{layer.canonical}router", ROUTER, Part(f"{name}.weight", shape))
    if experts.router_bias:
        part = Part(f"{name}.bias", (count,))
        yield constant(f"{layer.canonical}router_bias", (count,), part)
    if experts.choice_bias:
        part = Part(layer.tensor("choice_bias"), (count,))
        yield constant(f"{layer.canonical}choice_bias", (count,), part)


def shared_sources(layer: LayerTensors, experts: ExpertsConfig) -> Iterator[WeightSource]:
    """The MLP that every token uses, and the score that its result is gated by."""
    inner, hidden = experts.shared, layer.config.hidden_size
    if not inner:
        return
    if experts.shared_gate:
        part = Part(f"{layer.tensor('shared_router')}.weight", (1, hidden))
        yield matrix(f"{layer.canonical}shared_router", ROUTER, part)
    rows = {"shared_gate": inner, "shared_up": inner}
    yield from layer.linear("shared_gate_up", rows, hidden)
    yield from layer.linear("shared_down", {"shared_down": hidden}, inner)


def _stacked(
    layer: LayerTensors, name: str, rows: dict[str, int], columns: int
) -> Iterator[WeightSource]:
    """One matrix of all experts, and one of their biases. rows: linear -> its rows in an expert."""
    experts = experts_of(layer.config)
    linears = [(e, role, n) for e in range(experts.count) for role, n in rows.items()]
    parts = (_part(layer, e, role, (n, columns)) for e, role, n in linears)
    yield matrix(layer.canonical + name, EXPERTS, *parts)
    if experts.bias:
        shape = (experts.count, sum(rows.values()))
        biases = (_bias(layer, e, role, n) for e, role, n in linears)
        yield constant(f"{layer.canonical}{name}_bias", shape, *biases)


def _part(layer: LayerTensors, expert: int, role: str, shape: tuple[int, int]) -> Part:
    """One expert's linear: a tensor of its own, or rows of the one that has all."""
    if layer.has(f"expert_{role}"):
        return Part(f"{layer.tensor(f'expert_{role}').format(e=expert)}.weight", shape)
    (rows, columns), experts = shape, experts_of(layer.config)
    return Part(
        layer.tensor(f"experts_{role}") + ("" if layer.naming.experts_in_turn else ".weight"),
        (experts.count, *((columns, rows) if experts.transposed else shape)),
        rows=(expert * rows, rows),
        permute=_order(layer, role),
        transposed=experts.transposed,
    )


def _bias(layer: LayerTensors, expert: int, role: str, rows: int) -> Part:
    """One expert's row of the tensor that has all."""
    name = layer.tensor(f"experts_{role}") + ("_bias" if layer.naming.experts_in_turn else ".bias")
    shape = (experts_of(layer.config).count, rows)
    return Part(name, shape, rows=(expert, 1), permute=_order(layer, role))


def _order(layer: LayerTensors, role: str) -> Permute:
    return "pairs" if role == "gate_up" and layer.naming.experts_in_turn else "none"
