"""The weights of multi-head latent attention: see layers/latent.py."""

from __future__ import annotations

from collections.abc import Iterator

from anychip.model.sources import LayerTensors, Part, WeightSource, constant


def latent_sources(layer: LayerTensors) -> Iterator[WeightSource]:
    """Norms, compressed or whole queries, the latent, what expands it, the output projection."""
    config, latent = layer.config, layer.config.latent
    assert latent is not None
    hidden, bias = config.hidden_size, config.attention_bias
    yield layer.norm("attention_norm", hidden)
    width = hidden
    if latent.query_rank:
        width = latent.query_rank
        yield from layer.linear("query_down", {"query_down": width}, hidden, bias=bias)
        yield layer.norm("query_down_norm", width)
    rows = config.heads * (latent.nope + latent.rotated)
    role = "query_up" if latent.query_rank else "query"
    yield from layer.linear("query", {role: rows}, width)
    rows = latent.rank + latent.rotated
    yield from layer.linear("latent", {"latent": rows}, hidden, bias=bias)
    yield layer.norm("latent_norm", latent.rank)
    yield _expand(layer)
    output, width = {"attention_output": hidden}, config.heads * latent.value
    yield from layer.linear("attention_output", output, width, bias=config.output_bias)


def _expand(layer: LayerTensors) -> WeightSource:
    """[H, nope + value, rank]: read as a plain tensor, since a product a head multiplies by it."""
    config, latent = layer.config, layer.config.latent
    assert latent is not None
    rows = latent.nope + latent.value
    part = Part(f"{layer.tensor('expand')}.weight", (config.heads * rows, latent.rank))
    shape = (config.heads, rows, latent.rank)
    return constant(f"{layer.canonical}expand", shape, part, activation=True)
