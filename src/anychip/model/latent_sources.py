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
    rows, name = latent.nope + latent.value, f"{layer.canonical}expand"
    shape = (config.heads, rows, latent.rank)
    if layer.has("expand_keys"):
        parts = [part for head in range(config.heads) for part in _of_head(layer, head)]
        return constant(name, shape, *parts, activation=True)
    part = Part(f"{layer.tensor('expand')}.weight", (config.heads * rows, latent.rank))
    return constant(name, shape, part, activation=True)


def _of_head(layer: LayerTensors, head: int) -> tuple[Part, Part]:
    """One head's keys, which GGUF files have transposed, and its values."""
    heads, latent = layer.config.heads, layer.config.latent
    assert latent is not None
    keys = Part(
        f"{layer.tensor('expand_keys')}.weight",
        (heads, latent.rank, latent.nope),
        rows=(head * latent.nope, latent.nope),
        transposed=True,
    )
    values = Part(
        f"{layer.tensor('expand_values')}.weight",
        (heads, latent.value, latent.rank),
        rows=(head * latent.value, latent.value),
    )
    return keys, values
