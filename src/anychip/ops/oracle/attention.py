"""The oracle of the cache and of attention over it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anychip.ops.oracle.arrays import (
    Array,
    Attrs,
    CacheArrays,
    Inputs,
    Oracle,
    Result,
    latent_arrays,
    wide,
)
from anychip.ops.oracle.scaled import held, is_scaled, read


def _kv_write(inputs: Inputs, attrs: Attrs) -> Result:
    cache, slots = inputs["cache"], inputs["slots"]
    kept = slots >= 0
    written = []
    for pages, rows in ((cache.k, inputs["k"]), (cache.v, inputs["v"])):
        flat = pages.reshape(-1, *pages.shape[2:]).copy()
        new = rows[kept]
        flat[slots[kept]] = held(new, flat.dtype) if is_scaled(flat) else new.astype(flat.dtype)
        written.append(flat.reshape(pages.shape))
    return Result((), {"cache": CacheArrays(*written)})


def _latent_write(inputs: Inputs, attrs: Attrs) -> Result:
    cache, slots = inputs["cache"], inputs["slots"]
    kept = slots >= 0
    flat = cache.k.reshape(-1, cache.k.shape[3]).copy()
    flat[slots[kept]] = inputs["latent"][kept].astype(flat.dtype)
    return Result((), {"cache": latent_arrays(flat.reshape(cache.k.shape), cache.latent)})


def _kv_copy_pages(inputs: Inputs, attrs: Attrs) -> Result:
    sources, targets = inputs["sources"], inputs["targets"]

    def copied(pages: Array) -> Array:
        changed: Array = pages.copy()
        changed[targets] = pages[sources]
        return changed

    return Result((), {"cache": inputs["cache"].mapped(copied)})


def _visible(positions: Array, length: int, attrs: Attrs) -> Array:
    """[tokens, length]: which cache positions a token sees."""
    j, p = np.arange(length)[None, :], positions[:, None]
    seen = np.ones((len(positions), length), dtype=bool)
    if attrs["causal"]:
        seen &= j <= p
    if attrs["window"] > 0:
        seen &= j > p - attrs["window"]
    return seen


def _weights(scores: Array, seen: Array, sinks: Array | None) -> Array:
    """Softmax of [H, n, length] over the visible part of the last dimension and each head's sink;
    zeros where nothing is visible."""
    sink = np.full(len(scores), -np.inf) if sinks is None else wide(sinks)
    masked = np.where(seen, scores, -np.inf)
    top = np.maximum(masked.max(axis=-1, keepdims=True, initial=-np.inf), sink[:, None, None])
    top = np.where(np.isfinite(top), top, 0.0)
    exponents = np.where(seen, np.exp(masked - top), 0.0)
    total = exponents.sum(axis=-1, keepdims=True) + np.exp(sink[:, None, None] - top)
    weights: Array = exponents / np.where(total > 0, total, 1.0)
    return weights


def _attend(q: Array, kv: tuple[Array, Array], seen: Array, attrs: Attrs) -> Array:
    """q [n, H, D] over keys [length, G, D] and values [length, G, E] -> [n, H, E].

    attrs: the operator's, and its sinks [H].
    """
    group = q.shape[1] // kv[0].shape[1]
    keys, values = (half.repeat(group, axis=1).swapaxes(0, 1) for half in kv)  # [H, length, D]
    scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) * attrs["scale"]
    if attrs["softcap"] > 0:
        scores = attrs["softcap"] * np.tanh(scores / attrs["softcap"])
    y: Array = (_weights(scores, seen, attrs.get("sinks")) @ values).swapaxes(0, 1)
    return y


def _row(pages: Array, table: Array, length: int) -> Array:
    """The first `length` slots [length, G, D] of one row of the page table."""
    used = pages[table[: -(-length // pages.shape[1])]]
    return read(used.reshape(-1, *pages.shape[2:])[:length])


Pair = tuple[Array, Array]


def _over_rows(inputs: Inputs, attrs: Attrs, width: int, pair: Callable[[Pair], Pair]) -> Result:
    """Attention of each sequence by itself -> y [T, H, width]. pair: keys and values of what the
    cache holds of one sequence, [length, G, any] each."""
    q, cache, rows = wide(inputs["q"]), inputs["cache"], inputs["token_rows"]
    y = np.zeros((*q.shape[:2], width))
    for b in np.unique(rows):
        mine, length = np.flatnonzero(rows == b), int(inputs["kv_lens"][b])
        table = inputs["page_table"][b]
        kv = pair((_row(cache.k, table, length), _row(cache.v, table, length)))
        seen = _visible(inputs["positions"][mine], length, attrs)
        y[mine] = _attend(q[mine], kv, seen, attrs)
    return Result((y,))


def _paged_attention(inputs: Inputs, attrs: Attrs) -> Result:
    return _over_rows(inputs, attrs, inputs["q"].shape[2], lambda kv: kv)


def _sink_attention(inputs: Inputs, attrs: Attrs) -> Result:
    return _paged_attention(inputs, {**attrs, "sinks": inputs["sinks"]})


def _latent_attention(inputs: Inputs, attrs: Attrs) -> Result:
    size = attrs["value_dim"]
    return _over_rows(inputs, attrs, size, lambda kv: (kv[0], kv[0][..., :size]))


def _expanded_attention(inputs: Inputs, attrs: Attrs) -> Result:
    up, nope = wide(inputs["up"]), attrs["nope_dim"]
    heads, rows, rank = up.shape

    def expanded(kv: Pair) -> Pair:
        latent, rotated = kv[0][:, 0, :rank], kv[0][:, :, rank:]
        both = np.einsum("hnl,jl->jhn", up, latent)
        keys = [both[..., :nope], rotated.repeat(heads, axis=1)]
        return np.concatenate(keys, axis=-1), both[..., nope:]

    return _over_rows(inputs, attrs, rows - nope, expanded)


ATTENTION: dict[str, Oracle] = {
    "kv_write": _kv_write,
    "kv_copy_pages": _kv_copy_pages,
    "paged_attention": _paged_attention,
    "sink_attention": _sink_attention,
    "latent_write": _latent_write,
    "latent_attention": _latent_attention,
    "expanded_attention": _expanded_attention,
}
