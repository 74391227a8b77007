"""Test cases of every operator, as data: the same for our tests, for conformance, for a chip."""

from __future__ import annotations

from collections.abc import Callable

from anychip.ops.cases.attention import ATTENTION
from anychip.ops.cases.blocks import BLOCKS
from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.experts import EXPERTS
from anychip.ops.cases.latent import LATENTS
from anychip.ops.cases.logits import LOGITS
from anychip.ops.cases.network import NETWORK
from anychip.ops.cases.primitives import PRIMITIVES
from anychip.ops.cases.sampling import SAMPLING

__all__ = ["Case", "Control", "cases"]

_MAKERS: dict[str, Callable[[str], list[Case]]] = {
    **PRIMITIVES,
    **NETWORK,
    **EXPERTS,
    **ATTENTION,
    **LATENTS,
    **BLOCKS,
    **SAMPLING,
    **LOGITS,
}


def cases(op: str) -> list[Case]:
    """The cases of one operator in float32; `Case.with_dtype` gives the others. Raises KeyError."""
    return _MAKERS[op](op)
