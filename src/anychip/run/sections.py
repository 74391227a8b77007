"""Where the arrays of a step lie in its staging words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anychip.contract.dtype import DType
from anychip.contract.tensor import Buffer, Shape, Tensor
from anychip.run.sizes import Sizes

Words = npt.NDArray[np.int32]

ALIGNMENT = 16  # words of 4 bytes: every array starts at a multiple of 64 bytes


@dataclass(frozen=True)
class Section:
    """One array within the staging words."""

    start: int
    shape: Shape
    dtype: DType

    @property
    def end(self) -> int:
        """Word behind the last one."""
        return self.start + math.prod(self.shape)


def index_shapes(sizes: Sizes, *, states: bool = False) -> dict[str, Shape]:
    """Index arrays of a step and their shapes; see `model/network.py`.

    states: the model has recurrent state. given: tokens whose probability is told; SAMPLED_ONE
    where it is that of the sampled one.
    """
    t, b, r, k = (sizes.tokens,), (sizes.rows,), (sizes.samples,), (sizes.choice.entries,)
    found: dict[str, Shape] = {
        "tokens": t,
        "positions": t,
        "slots": t,
        "token_rows": t,
        "page_table": (sizes.rows, sizes.pages),
        "cu_q": (sizes.rows + 1,),
        "kv_lens": b,
        "last": r,
        "top_k": r,
    }
    if sizes.choice.entries:
        found |= {"adjusted_rows": k, "adjusted_ids": k}
    if sizes.choice.top >= 0:
        found["given"] = r
    if states:
        found |= {"state_from": b, "state_to": b}
    return found


SAMPLED_ONE = -1

FLOAT_INPUTS = ("temperature", "top_p", "min_p", "noise")
"""float32 arrays [R] that the sampler reads."""

MASK = "mask"
"""int32 [R, W], last in the staging words and copied alone: it is made while the network runs."""


def float_shapes(sizes: Sizes) -> dict[str, Shape]:
    """float32 arrays of a step and their shapes."""
    found: dict[str, Shape] = dict.fromkeys(FLOAT_INPUTS, (sizes.samples,))
    if sizes.choice.entries:
        found |= dict.fromkeys(("repetition", "bias"), (sizes.choice.entries,))
    return found


def sections(sizes: Sizes, *, states: bool = False) -> dict[str, Section]:
    """Where each array of a step lies in the staging words. states: as in `index_shapes`."""
    found: dict[str, Section] = {}
    start = 0
    shapes = [(n, s, DType.INT32) for n, s in index_shapes(sizes, states=states).items()]
    shapes += [(n, s, DType.FLOAT32) for n, s in float_shapes(sizes).items()]
    if sizes.choice.mask_words:
        shapes.append((MASK, (sizes.samples, sizes.choice.mask_words), DType.INT32))
    for name, shape, dtype in shapes:
        found[name] = Section(start, shape, dtype)
        start = -(-found[name].end // ALIGNMENT) * ALIGNMENT
    return found


def staging_words(sizes: Sizes, *, states: bool = False) -> int:
    """Words that a step of these sizes stages."""
    return max(section.end for section in sections(sizes, states=states).values())


class Layout:
    """Where a step of some sizes is staged: kept, since most steps have the sizes of the last.

    words: what the device gets and whoever reads indices on the host; of as many that lie ahead,
    a plain step takes them over as it begins.
    arrays: over the words, by name; floats: the sampler's, seen as float32. views: over those
    ahead, without numpy, whose calls cost much where few numbers are written. mask: where the
    rows' masks lie; None: there are none. source, ahead: both as bytes, without masks. tokens: in
    the words. target: where they go on the device; None: the words are the device's.
    """

    __slots__ = ("ahead", "arrays", "floats", "mask", "source", "target", "tokens", "views")

    def __init__(
        self,
        words: Words,
        ahead: Words,
        buffer: Buffer | None,
        sizes: Sizes,
        *,
        states: bool = False,
    ) -> None:
        found = sections(sizes, states=states)
        self.mask = found.pop(MASK, None)
        count = max(section.end for section in found.values())
        self.arrays = {n: words[s.start : s.end] for n, s in found.items()}
        self.floats = {n: self.arrays[n].view(np.float32) for n in float_shapes(sizes)}
        views = {n: ahead[s.start : s.end] for n, s in found.items()}
        self.views = {n: view.data for n, view in views.items()}
        self.views |= {n: views[n].view(np.float32).data for n in self.floats}
        self.tokens = self.arrays["tokens"].data
        self.target = None if buffer is None else Tensor((count,), DType.INT32, buffer=buffer)
        self.source = words[:count].view(np.uint8).data
        self.ahead = ahead[:count].view(np.uint8).data
