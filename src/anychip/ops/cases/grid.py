"""Cases by size: every dimension of every operator, each in turn, and some extremes together.

The cases of `cases()` show what an operator means; these show that a kernel holds at every size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from anychip.ops.cases.case import Case
from anychip.ops.cases.draw import draw
from anychip.ops.cases.grid_attention import ATTENTION
from anychip.ops.cases.grid_experts import EXPERTS
from anychip.ops.cases.grid_latent import LATENT
from anychip.ops.cases.grid_network import NETWORK
from anychip.ops.cases.grid_outliers import NO_OUTLIERS, outlier_sizes, with_outliers
from anychip.ops.cases.grid_primitives import PRIMITIVES
from anychip.ops.cases.grid_recurrent import RECURRENT
from anychip.ops.cases.grid_sampling import SAMPLING
from anychip.ops.cases.grid_sizes import Blank, Dimension, Family, Sizes

__all__ = ["DIMENSIONS", "NO_OUTLIERS", "Dimension", "blank", "grid", "outliers", "sized"]

FAMILIES: Mapping[str, Family] = {
    **PRIMITIVES,
    **NETWORK,
    **EXPERTS,
    **ATTENTION,
    **LATENT,
    **RECURRENT,
    **SAMPLING,
}

DIMENSIONS: Mapping[str, tuple[Dimension, ...]] = {
    op: family.dimensions for op, family in FAMILIES.items()
}
"""Operator -> what can be varied."""


def sized(op: str, **sizes: int) -> Case:
    """A float32 case of these sizes, others at their defaults, with a negative control.

    Its name and its contents follow from the sizes alone. Raises KeyError for an unknown operator,
    ValueError for an unknown dimension or sizes that do not go together.
    """
    family, name = FAMILIES[op], _name(sizes)
    complete = family.complete(op, sizes)
    inputs = family.inputs(op, draw(f"{op} {name}"), complete)
    case = Case(op, name, inputs, family.attrs(complete))
    return replace(case, control=family.control(case))


def blank(op: str, **sizes: int) -> Case:
    """The same shapes full of zeros, without a control: cheap at any size. Not to be run: its
    indices are no valid ones. For asking an implementation which sizes it covers."""
    family = FAMILIES[op]
    complete = family.complete(op, sizes)
    return Case(op, _name(sizes), family.inputs(op, Blank(), complete), family.attrs(complete))


def grid(op: str) -> Iterator[Case]:
    """All at their defaults, each dimension over its sizes, then some extremes together."""
    family = FAMILIES[op]
    yield sized(op)
    for dimension in family.dimensions:
        for size in dimension.sizes:
            if size != dimension.default:
                yield sized(op, **{dimension.name: size})
    for sizes in family.crossed:
        yield sized(op, **sizes)


def outliers(op: str) -> Case | None:
    """A case with activations of +-1e4 at a few places; None for operators of NO_OUTLIERS."""
    if op in NO_OUTLIERS:
        return None
    case = sized(op, **outlier_sizes(op))
    inputs = with_outliers(op, dict(case.inputs))
    case = replace(case, name="outliers", inputs=inputs, control=None)
    return replace(case, control=FAMILIES[op].control(case))


def _name(sizes: Sizes) -> str:
    """ "T=1025 K=96": what differs from the defaults; "defaults" where nothing does."""
    return " ".join(f"{name}={size}" for name, size in sizes.items()) or "defaults"
