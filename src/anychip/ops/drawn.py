"""Random operands for a call of a program: its own shapes, strides and dtypes, sensible values.

Weights are left out: a model's own are at hand where a program is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.contract.cache import CacheSpec
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import CallSpec
from anychip.contract.signature import Arg, ArgKind
from anychip.contract.tensor import TensorSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.cases.attention import Heads, Ragged, batch_of, cache_of, slots_of
from anychip.ops.cases.draw import Draw, draw
from anychip.ops.cases.experts import distinct_ids, experts_of
from anychip.ops.cases.latent import latent_cache
from anychip.ops.cases.logits import entries, mask_of
from anychip.ops.cases.primitives import POSITIVE
from anychip.ops.cases.recurrent import States, state_batch
from anychip.ops.oracle.arrays import Array, CacheArrays

CONTEXT = 3
"""Pages of earlier tokens that the first rows of a batch may have in the cache."""

_RANGES = {
    "temperature": (0.5, 1.5),
    "top_p": (0.5, 1.0),
    "min_p": (0.0, 0.1),
    "noise": (0.0, 1.0),
    "repetition": (1.0, 1.5),
    "weights": (0.1, 0.6),
}
"""Inputs of the sampler, and weights of experts: low and high."""

_DELTA = {"decay": (-1.5, 0.0), "beta": (0.0, 1.0), "k": (-0.2, 0.2)}
"""Inputs of the delta rule, low and high: a state that does not grow."""

_COMPARED = ("lt", "le", "eq")
"""Operators whose inputs are whole numbers, so that some of them are equal."""


def drawn(spec: CallSpec, seed: str) -> dict[str, Any]:
    """Arrays by argument (CacheArrays for a cache, None where an optional one is absent).

    The same for the same seed. A batch is ragged: its rows own shuffled pages and have contexts
    of different lengths, as far as the page table's width allows. What lies between the elements
    of a strided operand is NaN where it can be. Raises ValueError where the tokens of a call do
    not fit into the pages of its rows.
    """
    source, found = draw(seed), dict[str, Any]()
    batch = _pairs(spec, source) if "sources" in spec.inputs else _batch(spec, source)
    if "state_from" in spec.inputs:
        batch = _states(spec, source)
    for arg in CATALOGUE[spec.op].inputs:
        value = spec.inputs[arg.name]
        if value is None:
            found[arg.name] = None
        elif isinstance(value, CacheSpec):
            found[arg.name] = _cache(value, batch, spec, source)
        elif isinstance(value, TensorSpec):
            found[arg.name] = _array(arg, value, spec, batch, source)
    return found


def _pairs(spec: CallSpec, source: Draw) -> dict[str, Any]:
    """Pages to copy from and to, none of them twice, and how many the cache has."""
    count = spec.inputs["sources"].shape[0]  # type: ignore[union-attr]
    pages = 2 * count + 1
    chosen = source.distinct(2 * count, high=pages)
    return {"sources": chosen[:count], "targets": chosen[count:], "pages": pages}


def _batch(spec: CallSpec, source: Draw) -> dict[str, Any]:
    """Index arrays of attention, where the call takes them, and how many pages the cache has."""
    table, cache = spec.inputs.get("page_table"), spec.inputs.get("cache")
    if not isinstance(table, TensorSpec) or not isinstance(cache, CacheSpec):
        return {}
    rows, width = table.shape
    tokens = spec.inputs["token_rows"]
    assert isinstance(tokens, TensorSpec)
    size = cache.group.page_size
    angles = spec.inputs.get("cos_sin")
    room = min(width * size, angles.shape[0] if angles else width * size)
    counts = _shared_out(tokens.shape[0], rows, room)
    earlier = source.integers(rows, high=CONTEXT * size).tolist()
    spans = zip(counts, earlier, strict=True)
    lengths = tuple(min(room, count + before) for count, before in spans)
    widest = max(-(-n // size) for n in lengths)
    ragged = Ragged(counts, lengths, size, spare=width - widest)
    return {**batch_of(source, ragged), "pages": ragged.pages}


def _states(spec: CallSpec, source: Draw) -> dict[str, Any]:
    """Index arrays of recurrent state: the first row starts, the others have begun before."""
    rows, slots, tokens = (
        spec.inputs[name].shape[0]  # type: ignore[union-attr]
        for name in ("state_from", "state", "token_rows")
    )
    counts = _shared_out(tokens, rows, tokens)
    moved = slots >= 2 + 2 * rows
    batch = state_batch(source, States(counts, (0, *range(1, rows)), moved))
    if slots < 2 + rows:  # a chip's smallest: each row stays in its own
        batch |= dict.fromkeys(("state_from", "state_to"), np.arange(rows, dtype=np.int32))
    return batch


def _shared_out(tokens: int, rows: int, room: int) -> tuple[int, ...]:
    """Tokens of each row: at least one, and as many in the first ones as they have room for."""
    if not rows <= tokens <= rows * room:
        raise ValueError(f"{tokens} tokens in {rows} rows of at most {room} positions")
    counts, rest = list[int](), tokens - rows
    for _ in range(rows):
        more = min(rest, room - 1)
        counts.append(1 + more)
        rest -= more
    return tuple(counts)


def _cache(value: CacheSpec, batch: dict[str, Any], spec: CallSpec, source: Draw) -> CacheArrays:
    group, slots = value.group, spec.inputs.get("slots")
    pages = batch.get("pages", 8)
    if not batch and isinstance(slots, TensorSpec):
        pages = 2 + -(-slots.shape[0] // group.page_size)
    dtype = NUMPY_DTYPES[group.dtype]
    if group.latent:
        sizes = (group.head_dim, group.latent)
        arrays = latent_cache(source, pages, group.page_size, sizes)
    else:
        heads = Heads(group.kv_heads, group.kv_heads, group.head_dim)
        arrays = cache_of(source, pages, group.page_size, heads)
    return arrays.mapped(lambda half: half.astype(dtype))


def _array(
    arg: Arg, value: TensorSpec, spec: CallSpec, batch: dict[str, Any], source: Draw
) -> Array:
    if value.dtype.is_float:
        return _strided(_floats(arg.name, value, spec.op, source), value)
    if value.dtype.value == "bool":
        return _strided(source.integers(*value.shape, high=2) > 0, value)
    integers = _integers(arg, value, spec, batch, source)
    return _strided(integers.astype(NUMPY_DTYPES[value.dtype]), value)


def _floats(name: str, value: TensorSpec, op: str, source: Draw) -> Array:
    if op == "gated_delta_rule" and name in _DELTA:
        low, high = _DELTA[name]
        return source.uniform(*value.shape, low=low, high=high)
    if name in _RANGES:
        low, high = _RANGES[name]
        return source.uniform(*value.shape, low=low, high=high)
    if name == "cos_sin":
        angles = source.uniform(value.shape[0], value.shape[1] // 2, high=2 * np.pi)
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    if op in POSITIVE:  # elsewhere they give NaN, which tells nothing
        return source.uniform(*value.shape, low=0.2, high=3.0)
    values = source.normal(*value.shape, scale=4.0 if name == "logits" else 1.0)
    whole: Array = np.round(values) if op in _COMPARED else values
    return whole


def _integers(
    arg: Arg, value: TensorSpec, spec: CallSpec, batch: dict[str, Any], source: Draw
) -> Array:
    """What an index may be: inside of what it points into, no target twice."""
    if arg.name in batch:
        found: Array = batch[arg.name]
        return found
    limit = _limit(arg.name, spec)
    if spec.op.startswith("scatter"):
        return _targets(value, limit, source)
    if maker := _MAKERS.get(spec.op):
        return maker(arg.name, value, spec, source)
    if arg.name == "slots":
        size = spec.inputs["cache"].group.page_size  # type: ignore[union-attr]
        anywhere = source.distinct(0 if batch else value.size, high=limit)
        return slots_of(batch, size) if batch else anywhere.reshape(value.shape)
    high = limit if arg.kind is ArgKind.INDEX or arg.name == "index" else 8
    return source.integers(*value.shape, high=high)


def _targets(value: TensorSpec, rows: int, source: Draw) -> Array:
    """Each row at most once; what finds none is skipped."""
    found: Array = np.full(value.size, -1, np.int32)
    count = min(rows, value.size)
    found[:count] = source.distinct(count, high=rows)
    return found.reshape(value.shape)


def _of_logits(name: str, value: TensorSpec, spec: CallSpec, source: Draw) -> Array:
    """Masks of all bits; entries with an element each; tokens of the vocabulary."""
    rows, size = spec.inputs["logits"].shape  # type: ignore[union-attr]
    if name == "mask":
        return mask_of(source, rows, size)
    if name in ("rows", "ids"):
        chosen: Array = entries(draw("entries"), rows, size, value.size)[name]
        return chosen
    return source.integers(*value.shape, high=size)


def _of_experts(name: str, value: TensorSpec, spec: CallSpec, source: Draw) -> Array:
    """An expert for each row, or several for each token, none of them twice."""
    count = int(spec.attrs["experts_count"])
    if len(value.shape) == 1:
        return experts_of(source, value.shape[0], count)
    tokens, chosen = value.shape
    return distinct_ids(source, tokens, chosen, count)


_MAKERS: dict[str, Callable[[str, TensorSpec, CallSpec, Draw], Array]] = {
    **dict.fromkeys(("mask_logits", "adjust_logits", "token_logprobs"), _of_logits),
    **dict.fromkeys(("grouped_linear", "expert_mlp"), _of_experts),
}
"""Operators whose integers say more than where something is."""

_INTO = {"tokens": "table", "positions": "cos_sin", "index": "table"}
"""Index argument -> the input whose rows it counts."""


def _limit(name: str, spec: CallSpec) -> int:
    """One more than the largest value of an index argument."""
    cache = spec.inputs.get("cache")
    if name == "slots" and isinstance(cache, CacheSpec):
        count = spec.inputs[name].shape[0]  # type: ignore[union-attr]
        size = cache.group.page_size
        return (2 + -(-count // size)) * size
    if "bins" in spec.attrs:
        return int(spec.attrs["bins"])
    target = spec.inputs.get(_INTO.get(name, "")) or spec.inputs.get("target")
    return max(1, target.shape[0]) if target is not None else 8


def _strided(values: Array, spec: TensorSpec) -> Array:
    """The values over memory with the strides of the call."""
    dtype = NUMPY_DTYPES[spec.dtype]
    if spec.is_contiguous or spec.size == 0:
        return np.ascontiguousarray(values.astype(dtype))
    last = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
    base = np.full(last + 1, np.nan if spec.dtype.is_float else 0, dtype)
    strides = [s * base.itemsize for s in spec.strides]
    view = np.lib.stride_tricks.as_strided(base, spec.shape, strides)
    view[...] = values
    return view
