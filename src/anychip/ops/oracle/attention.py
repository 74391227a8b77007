"""The oracle of the cache and of attention over it."""

from __future__ import annotations

import numpy as np

from anychip.ops.oracle.arrays import Array, Attrs, CacheArrays, Inputs, Oracle, Result, wide


def _kv_write(inputs: Inputs, attrs: Attrs) -> Result:
    cache, slots = inputs["cache"], inputs["slots"]
    kept = slots >= 0
    written = []
    for pages, rows in ((cache.k, inputs["k"]), (cache.v, inputs["v"])):
        flat = pages.reshape(-1, *pages.shape[2:]).copy()
        flat[slots[kept]] = rows[kept].astype(flat.dtype)
        written.append(flat.reshape(pages.shape))
    return Result((), {"cache": CacheArrays(*written)})


def _kv_copy_pages(inputs: Inputs, attrs: Attrs) -> Result:
    cache, sources, targets = inputs["cache"], inputs["sources"], inputs["targets"]
    k, v = cache.k.copy(), cache.v.copy()
    k[targets], v[targets] = cache.k[sources], cache.v[sources]
    return Result((), {"cache": CacheArrays(k, v)})


def _visible(positions: Array, length: int, attrs: Attrs) -> Array:
    """[tokens, length]: which cache positions a token sees."""
    j, p = np.arange(length)[None, :], positions[:, None]
    seen = np.ones((len(positions), length), dtype=bool)
    if attrs["causal"]:
        seen &= j <= p
    if attrs["window"] > 0:
        seen &= j > p - attrs["window"]
    return seen


def _weights(scores: Array, seen: Array) -> Array:
    """Softmax over the visible part of the last dimension; zeros where nothing is visible."""
    masked = np.where(seen, scores, -np.inf)
    top = np.max(masked, axis=-1, keepdims=True, initial=-np.inf)
    exponents = np.where(seen, np.exp(masked - np.where(np.isfinite(top), top, 0.0)), 0.0)
    total = exponents.sum(axis=-1, keepdims=True)
    weights: Array = exponents / np.where(total > 0, total, 1.0)
    return weights


def _attend(q: Array, kv: tuple[Array, Array], seen: Array, attrs: Attrs) -> Array:
    """q [n, H, D] over keys and values [length, G, D] each -> [n, H, D]."""
    group = q.shape[1] // kv[0].shape[1]
    keys, values = (half.repeat(group, axis=1).swapaxes(0, 1) for half in kv)  # [H, length, D]
    scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) * attrs["scale"]
    if attrs["softcap"] > 0:
        scores = attrs["softcap"] * np.tanh(scores / attrs["softcap"])
    y: Array = (_weights(scores, seen) @ values).swapaxes(0, 1)
    return y


def _row(pages: Array, table: Array, length: int) -> Array:
    """The first `length` slots [length, G, D] of one row of the page table."""
    used = pages[table[: -(-length // pages.shape[1])]]
    return wide(used.reshape(-1, *pages.shape[2:])[:length])


def _paged_attention(inputs: Inputs, attrs: Attrs) -> Result:
    q, cache, rows = wide(inputs["q"]), inputs["cache"], inputs["token_rows"]
    y = np.zeros_like(q)
    for b in np.unique(rows):
        mine, length = np.flatnonzero(rows == b), int(inputs["kv_lens"][b])
        table = inputs["page_table"][b]
        kv = (_row(cache.k, table, length), _row(cache.v, table, length))
        seen = _visible(inputs["positions"][mine], length, attrs)
        y[mine] = _attend(q[mine], kv, seen, attrs)
    return Result((y,))


ATTENTION: dict[str, Oracle] = {
    "kv_write": _kv_write,
    "kv_copy_pages": _kv_copy_pages,
    "paged_attention": _paged_attention,
}
