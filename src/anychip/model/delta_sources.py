"""Which tensors of a checkpoint make up a layer of the gated delta rule, and gated attention.

Files keep together what belongs to one key head, or to one query head; the network wants all
queries, then all keys, and so on: rows of a tensor are parts of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from anychip.contract.weights import WeightUse
from anychip.model.config import DeltaConfig
from anychip.model.sources import (
    LINEAR,
    LayerTensors,
    Part,
    WeightSource,
    attention_sources,
    constant,
    matrix,
)

GATES = frozenset({WeightUse.LM_HEAD})
"""Gates are float32, as an output's logits are."""


def delta_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    """Norm; queries, keys, values and output gates in one matrix; convolution, gates, output."""
    config, delta = layer.config, layer.config.delta
    assert delta is not None
    hidden, name = config.hidden_size, layer.canonical
    yield layer.norm("attention_norm", hidden)
    yield matrix(f"{name}delta_in", LINEAR, *_mixed(layer, delta))
    channels = 2 * delta.keys + delta.values
    conv = Part(f"{layer.tensor('delta_conv')}.weight", (channels, 1, delta.width))
    yield constant(f"{name}conv", (channels, delta.width), conv)
    yield matrix(f"{name}delta_gates", GATES, *_gates(layer, delta))
    for role in ("delta_bias", "delta_rate"):
        shape = (delta.value_heads,)
        logarithm = role in layer.naming.logarithms
        yield constant(name + role, shape, Part(layer.tensor(role), shape, logarithm=logarithm))
    yield layer.norm("delta_norm", delta.value_dim)
    output = Part(f"{layer.tensor('delta_output')}.weight", (hidden, delta.values))
    yield matrix(f"{name}delta_output", LINEAR, output)


def _mixed(layer: LayerTensors, delta: DeltaConfig) -> Iterator[Part]:
    """All q, k, v, z; a file has each key head's q, k, and its value heads' v and z.

    Or it has them in the order of the network already, z in a tensor of its own.
    """
    if not layer.has("delta_in"):
        rows = {"delta_qkv": 2 * delta.keys + delta.values, "delta_z": delta.values}
        for role, count in rows.items():
            yield Part(f"{layer.tensor(role)}.weight", (count, layer.config.hidden_size))
        return
    values = delta.values // delta.key_heads
    sizes = (delta.key_dim, delta.key_dim, values, values)
    yield from _regrouped(layer, "delta_in", sizes, delta.key_heads)


def _gates(layer: LayerTensors, delta: DeltaConfig) -> Iterator[Part]:
    """All b, then all a."""
    share = delta.value_heads // delta.key_heads
    yield from _regrouped(layer, "delta_gates", (share, share), delta.key_heads)


def _regrouped(
    layer: LayerTensors, role: str, sizes: tuple[int, ...], groups: int
) -> Iterator[Part]:
    """A tensor whose rows are `groups` times rows of these sizes: all of the first size first."""
    width = sum(sizes)
    shape = (groups * width, layer.config.hidden_size)
    for place, size in enumerate(sizes):
        for group in range(groups):
            first = group * width + sum(sizes[:place])
            yield Part(f"{layer.tensor(role)}.weight", shape, rows=(first, size))


def gated_attention_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    """As of other attention, with every head's gate, which lies behind its query, at the end."""
    config = layer.config
    sizes = (config.head_dim, config.head_dim)
    rows = tuple(_regrouped(layer, "query", sizes, config.heads))
    queries, gates = rows[: config.heads], rows[config.heads :]
    for source in attention_sources(layer):
        if source.name.endswith("qkv"):
            yield matrix(source.name, LINEAR, *queries, *source.parts[1:], *gates)
        else:
            yield source
