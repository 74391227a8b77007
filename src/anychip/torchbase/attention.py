"""The paged cache and attention over it, in float32.

Attention reads the host half of its indices to know which tokens belong to which sequence and how
long each is; pages and positions come from the device half.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs
from anychip.torchbase.scaled import packed, values
from anychip.torchbase.views import CacheViews

TOKENS = 128
"""Queries of one sequence that are taken at a time: bounds the matrix of scores."""
POSITIONS = 32768
"""Cache positions of sequences with one query each that are gathered at a time."""


def kv_write(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Store keys and values at their slots; negative slots are skipped."""
    cache = inputs["cache"]
    for half, rows in zip(cache.halves, (inputs["k"], inputs["v"]), strict=True):
        new = rows if cache.held is None else packed(rows, cache.held)
        _put(half, new, inputs["slots"].device)


def latent_write(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Store vectors at their slots; negative slots are skipped."""
    _put(inputs["cache"].k, inputs["latent"][:, None], inputs["slots"].device)


def _put(half: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor) -> None:
    """rows [T, G, D] into the pages of one half of a cache."""
    kept = slots >= 0
    slots = slots[kept].long()
    size = half.shape[1]
    where = (torch.div(slots, size, rounding_mode="floor"), slots % size)
    half.index_put_(where, rows[kept].to(half.dtype))


def kv_copy_pages(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Copy whole pages."""
    sources, targets = inputs["sources"].device, inputs["targets"].device.long()
    for half in inputs["cache"].halves:
        half.index_copy_(0, targets, torch.index_select(half, 0, sources))


class _Group(NamedTuple):
    """Sequences with equally many queries. tokens: [sequences][queries], lengths in positions."""

    rows: list[int]
    tokens: list[list[int]]
    lengths: list[int]


def paged_attention(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Attention in each of its forms but the expanded one."""
    attend(inputs, outputs["y"], attrs)


def expanded_attention(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Queries meet the matrix of the keys, and what comes of the latents that of the values, so
    that nothing in the cache is expanded."""
    up, nope, q = inputs["up"].float(), attrs["nope_dim"], inputs["q"].float()
    absorbed = torch.einsum("thn,hnl->thl", q[..., :nope], up[:, :nope])
    asked = torch.cat([absorbed, q[..., nope:]], dim=-1)
    attrs = {**attrs, "value_dim": up.shape[2]}
    mixed = torch.empty((*q.shape[:2], up.shape[2]), device=q.device)
    attend({**inputs, "q": asked}, mixed, attrs)
    outputs["y"].copy_(torch.einsum("thl,hvl->thv", mixed, up[:, nope:]))


def attend(inputs: Inputs, y: torch.Tensor, attrs: Attrs) -> None:
    """Sequences with one query together, others one by one. A token that sees nothing gives 0.

    y: [T, H, E]. inputs: sinks where there are some; attrs: value_dim over a latent cache.
    """
    y.zero_()
    for group in _groups(inputs):
        _attend(group, inputs, y, attrs)


def _groups(inputs: Inputs) -> Iterator[_Group]:
    tokens: dict[int, list[int]] = {}
    for token, row in enumerate(inputs["token_rows"].host.tolist()):
        tokens.setdefault(row, []).append(token)
    lengths = inputs["kv_lens"].host.tolist()
    seeing = [row for row in sorted(tokens) if row >= 0 and lengths[row] > 0]
    yield from _single([row for row in seeing if len(tokens[row]) == 1], tokens, lengths)
    for row in (r for r in seeing if len(tokens[r]) > 1):
        for first in range(0, len(tokens[row]), TOKENS):
            yield _Group([row], [tokens[row][first : first + TOKENS]], [lengths[row]])


def _single(rows: list[int], tokens: dict[int, list[int]], lengths: list[int]) -> Iterator[_Group]:
    """Sequences of similar lengths together, so that little is gathered in vain."""
    rows = sorted(rows, key=lambda row: lengths[row], reverse=True)
    while rows:
        count = max(POSITIONS // lengths[rows[0]], 1)
        taken, rows = rows[:count], rows[count:]
        yield _Group(taken, [tokens[row] for row in taken], [lengths[row] for row in taken])


def _attend(group: _Group, inputs: Inputs, y: torch.Tensor, attrs: Attrs) -> None:
    """B sequences of n queries over L positions, G KV heads each read by `share` query heads."""
    device = y.device
    lengths = torch.tensor(group.lengths, device=device)[:, None]
    tokens = torch.tensor(group.tokens, device=device)
    keys, own, place = _gathered(group, inputs, lengths)
    held = keys[..., : attrs["value_dim"]] if own is None else own
    q = inputs["q"][tokens].float()
    batch, queries, heads, dim = q.shape
    q = q.view(batch, queries, keys.shape[1], -1, dim).permute(0, 2, 3, 1, 4).flatten(2, 3)
    scores = torch.matmul(q, keys.transpose(-1, -2)) * attrs["scale"]
    if attrs["softcap"] > 0:
        scores = torch.tanh(scores / attrs["softcap"]) * attrs["softcap"]
    seen = _seen(inputs["positions"].device[tokens], lengths, place, attrs)[:, None, None]
    scores = scores.unflatten(2, (-1, queries)).masked_fill(~seen, -torch.inf)
    weights = _softmax(scores, inputs.get("sinks")).masked_fill(~seen, 0.0)
    mixed = torch.matmul(weights.flatten(2, 3), held).unflatten(2, (-1, queries))
    y[tokens] = mixed.permute(0, 3, 1, 2, 4).reshape(batch, queries, heads, -1).to(y.dtype)


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Of [B, G, share, n, L]; sinks: [H], one more column a head, which is left out again."""
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    sinks = sinks.view(1, *scores.shape[1:3], 1, 1).expand(*scores.shape[:4], 1)
    return torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]


def _gathered(
    group: _Group, inputs: Inputs, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Keys and values [B, G, L, D], zeros behind each length, and the positions [L].

    Values are None where they are a part of the keys.
    """
    cache: CacheViews = inputs["cache"]
    size, longest = cache.k.shape[1], max(group.lengths)
    rows = torch.tensor(group.rows, device=lengths.device)
    pages = inputs["page_table"].device[rows, : -(-longest // size)]
    first = torch.arange(pages.shape[1], device=lengths.device) * size
    pages = torch.where(first < lengths, pages, 0)  # what lies behind a length is garbage
    place = torch.arange(longest, device=lengths.device)
    inside = (place < lengths)[:, None, :, None]
    found = (half[pages].flatten(1, 2)[:, :longest].transpose(1, 2) for half in cache.halves)
    floats = (x.float() if cache.held is None else values(x, cache.held) for x in found)
    halves = [torch.where(inside, x, 0.0) for x in floats]
    return halves[0], None if cache.latent else halves[1], place


def _seen(
    positions: torch.Tensor, lengths: torch.Tensor, place: torch.Tensor, attrs: Attrs
) -> torch.Tensor:
    """Which positions each query sees, [B, n, L]."""
    own = positions[..., None]
    seen = (place < lengths)[:, None].expand(-1, positions.shape[1], -1)
    if attrs["causal"]:
        seen = seen & (place <= own)
    if attrs["window"] > 0:
        seen = seen & (place > own - attrs["window"])
    return seen


KERNELS: dict[str, Kernel] = {
    "kv_write": kv_write,
    "kv_copy_pages": kv_copy_pages,
    "latent_write": latent_write,
    "paged_attention": paged_attention,
    "sink_attention": paged_attention,
    "latent_attention": paged_attention,
    "expanded_attention": expanded_attention,
}
READS_HOST = frozenset({paged_attention, expanded_attention})
"""Kernels that read the host half of an index."""
