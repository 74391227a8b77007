"""Defects that were measured on a vendor's libraries, each in its own shape, wherever it fits an
operator of the catalogue: right in small tests, wrong at one size, in one phase, in one dtype."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anychip.chips.fake.registration import FakeChip
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, Implementation, Launch
from anychip.hostops import NUMPY_DTYPES
from conform.defective import Change, afterwards, around, elements
from conform.defects_operators import rows_of


def is_decode(call: Call) -> bool:
    """One token a row."""
    return call.inputs["q"].shape[0] == rows_of(call)


def when(applies, **attrs) -> Change:
    """The kernel runs with these attributes where `applies(call)`; a function is given the call."""

    def changed(chip: FakeChip, impl: Implementation) -> Implementation:
        def prepare(call: Call) -> Launch:
            if not applies(call):
                return impl.prepare(call)
            other = {n: v(call) if callable(v) else v for n, v in attrs.items()}
            spec = replace(call.spec, attrs={**call.attrs, **other})
            return impl.prepare(replace(call, spec=spec))

        return replace(impl, prepare=prepare)

    return changed


def by_head_size(call: Call) -> float:
    """The scale that the kernel multiplies by, whatever it is told."""
    return call.inputs["q"].shape[-1] ** -0.5


def empty_from_1024_rows(chip: FakeChip, call: Call) -> None:
    """A batch of 1,024 and more gives nothing."""
    if rows_of(call) >= 1024:
        elements(chip, call, "y")[...] = 0


def last_of_a_wide_row(chip: FakeChip, call: Call) -> None:
    """One row in float16 with more than 200,000 results: those past 65,535 come from elsewhere."""
    logits = elements(chip, call, "logits")
    if call.inputs["x"].dtype is DType.FLOAT16 and len(logits) == 1 and logits.shape[1] > 200_000:
        logits[0, 65_535:] = logits[0, : logits.shape[1] - 65_535]


def output(chip: FakeChip, call: Call) -> np.ndarray:
    return np.array(elements(chip, call, "y"))


def put_back(chip: FakeChip, call: Call, seen: np.ndarray) -> None:
    """The output is as it was before: a kernel that returns success and writes nothing."""
    elements(chip, call, "y")[...] = seen


def cache_of(chip: FakeChip, call: Call) -> dict[str, np.ndarray]:
    """Both halves, [pages, slots, heads, dim]."""
    view = call.inputs["cache"]
    return {"k": chip._store.array(view.k), "v": chip._store.array(view.v)}


def kept_cache(chip: FakeChip, call: Call) -> dict[str, np.ndarray]:
    return {name: np.array(half) for name, half in cache_of(chip, call).items()}


def heads_first(chip: FakeChip, call: Call, seen: dict[str, np.ndarray]) -> None:
    """Pages are written heads first, read slots first: the same bytes where there is one head."""
    slots = chip._store.array(call.inputs["slots"].device)
    for name, cache in cache_of(chip, call).items():
        cache[...] = seen[name]
        pages, size, heads, dim = cache.shape
        turned = cache.reshape(pages, heads, size, dim)
        for token in np.flatnonzero(slots >= 0):
            page, slot = divmod(int(slots[token]), size)
            turned[page, :, slot] = elements(chip, call, name)[token].astype(cache.dtype)


def in_units_of_the_maximum(chip: FakeChip, call: Call) -> None:
    """Keys are stored 127 times too small: the reader is meant to know."""
    slots = chip._store.array(call.inputs["slots"].device)
    cache = cache_of(chip, call)["k"]
    flat = cache.reshape(-1, *cache.shape[2:])
    written = slots[slots >= 0]
    flat[written] = (flat[written].astype(np.float32) / 127).astype(flat.dtype)


def misread(chip: FakeChip, call: Call) -> np.ndarray:
    """A kernel of float16 alone takes the bytes of bfloat16 for such."""
    x = elements(chip, call, "x")
    seen = np.array(x)
    if call.inputs["x"].dtype is DType.BFLOAT16:
        x[...] = seen.view(NUMPY_DTYPES[DType.FLOAT16]).astype(np.float32).astype(x.dtype)
    return seen


def as_it_was(chip: FakeChip, call: Call, seen: np.ndarray) -> None:
    """The input itself stays whole."""
    elements(chip, call, "x")[...] = seen


DEFECTS = {
    "window ignored by decode alone": (
        {"paged_attention": when(is_decode, window=0)},
        "O1 paged_attention",
    ),
    "scale fixed by the head size": (
        {"paged_attention": when(lambda call: True, scale=by_head_size)},
        "O3 paged_attention",
    ),
    "a batch of 1,024 fails": (
        {"paged_attention": afterwards(empty_from_1024_rows)},
        "O1 paged_attention",
    ),
    "one row of 248,320 logits": ({"lm_head": afterwards(last_of_a_wide_row)}, "O1 lm_head"),
    "output not written": ({"silu_and_mul": around(output, put_back)}, "O5 silu_and_mul"),
    "pages heads first": ({"kv_write": around(kept_cache, heads_first)}, "O4 cache"),
    "keys in units of a maximum": (
        {"kv_write": afterwards(in_units_of_the_maximum)},
        "O4 cache",
    ),
    "bfloat16 read as float16": ({"linear": around(misread, as_it_was)}, "O1 linear"),
}
"""Defect -> what is changed, and the check that must catch it. In order: incidents 3, 32, 1, 2, 35,
31, 6 and 23."""
