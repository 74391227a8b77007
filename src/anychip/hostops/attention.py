"""The paged cache and attention over it.

One token's result is the same whatever chunk, batch or page size it came with: keys are taken
in blocks of BLOCK positions counted from 0, always TOKENS queries at a time (padded), partial
results are added block by block in order, and a key that is not seen adds exactly nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from anychip.hostops.matrix import ROWS, exact_product, rows_by_matrices
from anychip.hostops.primitives import Attrs, Inputs, Kernel, Outputs
from anychip.hostops.views import Array, Floats, floats

BLOCK = 64  # key positions
TOKENS = ROWS  # queries of one tile


class CacheArrays(NamedTuple):
    """One layer's keys and values, [pages, page size, KV heads, head dim].

    latent > 0: the values are that many elements of the keys, from the first.
    """

    k: Array
    v: Array
    latent: int = 0

    @property
    def halves(self) -> tuple[Array, ...]:
        """What has memory of its own."""
        return (self.k,) if self.latent else (self.k, self.v)


def kv_write(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Store keys and values at their slots; negative slots are skipped."""
    cache, slots = inputs["cache"], inputs["slots"]
    kept = slots >= 0
    page, offset = np.divmod(slots[kept], cache.k.shape[1])
    cache.k[page, offset] = inputs["k"][kept]
    cache.v[page, offset] = inputs["v"][kept]


def latent_write(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Store vectors at their slots; negative slots are skipped."""
    cache, slots = inputs["cache"], inputs["slots"]
    kept = slots >= 0
    page, offset = np.divmod(slots[kept], cache.k.shape[1])
    cache.k[page, offset, 0] = inputs["latent"][kept]


def kv_copy_pages(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Copy whole pages."""
    for half in inputs["cache"].halves:
        half[inputs["targets"]] = half[inputs["sources"]]


@dataclass(frozen=True)
class _Sequence:
    """One row's keys and values as float32 blocks [blocks, KV heads, BLOCK, head dim]."""

    keys: Floats
    values: Floats
    length: int
    attrs: Attrs
    sinks: Floats | None


def paged_attention(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Attention over keys and values. A token of a negative row sees nothing."""
    attend(inputs, outputs["y"], attrs)


def sink_attention(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The same, with one more column a head."""
    attend(inputs, outputs["y"], attrs)


def latent_attention(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The same, over vectors whose first elements are the values."""
    attend(inputs, outputs["y"], attrs)


def expanded_attention(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Queries meet the matrix of the keys, and what comes of the latents that of the values, so
    that nothing in the cache is expanded."""
    up, nope, q = inputs["up"], attrs["nope_dim"], floats(inputs["q"])
    rank = up.shape[2]
    absorbed = exact_product(q[..., :nope].swapaxes(0, 1), up[:, :nope]).swapaxes(0, 1)
    asked = np.concatenate([absorbed, q[..., nope:]], axis=2)
    mixed = np.empty((*q.shape[:2], rank), np.float32)
    attend({**inputs, "q": asked}, mixed, {**attrs, "value_dim": rank})
    y = exact_product(mixed.swapaxes(0, 1), up[:, nope:].swapaxes(1, 2))
    outputs["y"][...] = y.swapaxes(0, 1)


def attend(inputs: Inputs, y: Array, attrs: Attrs) -> None:
    """Sequence by sequence, tile by tile. y: [T, H, E]."""
    rows, width = inputs["token_rows"], attrs.get("value_dim", 0)
    y[...] = 0
    for row in np.unique(rows[rows >= 0]):
        tokens = np.flatnonzero(rows == row)
        length = int(inputs["kv_lens"][row])
        if length <= 0:
            continue
        cache, pages = inputs["cache"], inputs["page_table"][row]
        keys = _blocks(cache.k, pages, length)
        values = keys[..., :width] if width else _blocks(cache.v, pages, length)
        values = np.ascontiguousarray(values)
        sequence = _Sequence(keys, values, length, attrs, inputs.get("sinks"))
        for first in range(0, len(tokens), TOKENS):
            tile = tokens[first : first + TOKENS]
            y[tile] = _tile(floats(inputs["q"][tile]), inputs["positions"][tile], sequence)


def _blocks(half: Array, pages: Array, length: int) -> Floats:
    """Positions 0 .. length - 1 in blocks, zeros behind."""
    size, heads, dim = half.shape[1:]
    count = -(-length // BLOCK)
    needed = pages[: -(-length // size)]
    gathered = np.zeros((count * BLOCK, heads, dim), np.float32)
    gathered[:length] = half[needed].reshape(-1, heads, dim)[:length]
    split = gathered.reshape(count, BLOCK, heads, dim).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(split)


def _tile(q: Floats, positions: Array, sequence: _Sequence) -> Floats:
    """Up to TOKENS tokens [n, H, D] of one sequence."""
    heads, dim = q.shape[1:]
    groups = sequence.keys.shape[1]
    share = heads // groups
    padded = np.zeros((TOKENS, groups, share, dim), np.float32)
    padded[: len(q)] = q.reshape(len(q), groups, share, dim)
    queries = np.ascontiguousarray(padded.transpose(1, 0, 2, 3)).reshape(groups, -1, dim)
    seen, blocks = _visible(positions, sequence)
    scores = _scores(queries, sequence.keys[blocks], sequence.attrs)
    shape = (len(scores), groups, TOKENS, share, BLOCK)
    sinks = None if sequence.sinks is None else sequence.sinks.reshape(groups, 1, share)
    seen = seen[:, None, :, None, :]
    weights, total = _softmax_parts(scores.reshape(shape), seen, sinks)
    parts = rows_by_matrices(weights.reshape(scores.shape), sequence.values[blocks])
    width = parts.shape[-1]
    mixed = _in_order(parts).reshape(groups, TOKENS, share, width)
    result = mixed / np.where(total > 0, total, np.float32(1))[..., None]
    tokens: Floats = result.transpose(1, 0, 2, 3).reshape(TOKENS, heads, width)[: len(q)]
    return tokens


def _visible(positions: Array, sequence: _Sequence) -> tuple[Array, slice]:
    """Which key each token sees, [blocks, TOKENS, BLOCK], over the blocks that anyone sees."""
    own = np.full(TOKENS, -1, np.int64)
    own[: len(positions)] = positions
    last = sequence.length - 1
    if sequence.attrs["causal"]:
        last = min(last, max(int(positions.max()), 0))
    window = sequence.attrs["window"]
    first = max(int(positions.min()) - window + 1, 0) if window > 0 else 0
    blocks = slice(min(first, last) // BLOCK, last // BLOCK + 1)
    key = np.arange(blocks.start * BLOCK, blocks.stop * BLOCK).reshape(-1, 1, BLOCK)
    seen = np.broadcast_to(key < sequence.length, (len(key), TOKENS, BLOCK))
    if sequence.attrs["causal"]:
        seen = seen & (key <= own[:, None])
    if window > 0:
        seen = seen & (key > own[:, None] - window)
    return seen, blocks


def _scores(queries: Floats, keys: Floats, attrs: Attrs) -> Floats:
    """[blocks, KV heads, TOKENS * share, BLOCK], scaled and capped."""
    scores: Floats = rows_by_matrices(queries, keys.swapaxes(-1, -2)) * np.float32(attrs["scale"])
    cap = np.float32(attrs["softcap"])
    if cap > 0:
        scores = cap * np.tanh(scores / cap)
    return scores


def _softmax_parts(scores: Floats, seen: Array, sinks: Floats | None) -> tuple[Floats, Any]:
    """Unnormalized weights and their sum [KV heads, TOKENS, share]; unseen keys weigh 0.

    sinks: [KV heads, 1, share], scores that take weight and have no value.
    """
    masked = np.where(seen, scores, np.float32(-np.inf))
    peak = masked.max(axis=(0, -1))
    if sinks is not None:
        peak = np.maximum(peak, sinks)
    peak = np.where(np.isinf(peak), np.float32(0), peak)
    weights = np.exp(masked - peak[None, ..., None])
    total = _in_order(weights.sum(axis=-1))
    return weights, total if sinks is None else total + np.exp(sinks - peak)


def _in_order(parts: Floats) -> Floats:
    total = np.zeros(parts.shape[1:], np.float32)
    for part in parts:
        total += part
    return total


KERNELS: dict[str, Kernel] = {
    "kv_write": kv_write,
    "kv_copy_pages": kv_copy_pages,
    "paged_attention": paged_attention,
    "sink_attention": sink_attention,
    "latent_write": latent_write,
    "latent_attention": latent_attention,
    "expanded_attention": expanded_attention,
}
