"""From kernels over torch views to implementations that a chip lists in its table."""

from __future__ import annotations

from collections.abc import Collection

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.operators import (
    Call,
    Implementation,
    Launch,
    plain_only,
    uniform_row,
)
from anychip.torchbase import (
    attention,
    experts,
    logits,
    network,
    ordering,
    primitives,
    recurrent,
    sampling,
)
from anychip.torchbase.kernel import Kernel
from anychip.torchbase.queue import Stream
from anychip.torchbase.scaled import SCALED_DTYPES
from anychip.torchbase.views import TORCH_DTYPES, value_view, view_of

KERNELS: dict[str, Kernel] = {
    **primitives.KERNELS,
    **ordering.KERNELS,
    **network.KERNELS,
    **experts.KERNELS,
    **attention.KERNELS,
    **recurrent.KERNELS,
    **sampling.KERNELS,
    **logits.KERNELS,
}
FLOATS = tuple(d.value for d in DType if d.is_float)
NUMBERS = (*FLOATS, "int32")
HELD = (*FLOATS, *(d.value for d in SCALED_DTYPES))
"""What a cache may be held in."""
ANY = tuple(d.value for d in TORCH_DTYPES)
OF_ANY = frozenset({"copy", "cast", "fill", "where", "gather_rows", "scatter_rows"})
OF_NUMBERS = frozenset(
    {"arange", "cumsum", "add", "sub", "mul", "maximum", "minimum", "lt", "le", "eq", "neg"}
    | {"abs", "reduce_sum", "reduce_max", "reduce_min"}
)


def table(
    stream: Stream, *, ops: Collection[str] | None = None, prefix: str = "torch"
) -> tuple[Implementation, ...]:
    """Implementations of every operator but the fused blocks, or of `ops` alone.

    ids are "<prefix>.<op>". Dense weights and caches in layout NHD only; others are declined.
    Raises KeyError for an operator not here.
    """
    return tuple(
        from_kernel(stream, name, KERNELS[name], prefix)
        for name in (KERNELS if ops is None else ops)
    )


def from_kernel(stream: Stream, op: str, kernel: Kernel, prefix: str) -> Implementation:
    """A kernel over torch views as an implementation, with every dtype that the operator may have.

    Narrow it with `dataclasses.replace(..., dtypes=..., when=...)`. Raises KeyError for an
    operator that is not in the catalogue.
    """

    def prepare(call: Call) -> Launch:
        try:
            inputs = {name: value_view(value) for name, value in call.inputs.items()}
            outputs = {name: view_of(tensor) for name, tensor in call.outputs.items()}
        except ValueError as error:
            text = f"{op}: {error}"
            raise invalid(stream.device.chip, ChipLayer.OPERATORS, text) from error
        attrs, read = call.attrs, experts.bytes_read(kernel, call.attrs)

        def work() -> None:
            kernel(inputs, outputs, attrs)
            stream.reads(read)

        return lambda: stream.launch(op, work)

    return Implementation(
        op=op,
        id=f"{prefix}.{op}",
        prepare=prepare,
        dtypes=(uniform_row(CATALOGUE[op], _types(op), HELD),),
        when=plain_only,
        reads_host=kernel in (attention.READS_HOST | recurrent.READS_HOST | experts.READS_DEVICE),
        latent=True,
    )


def _types(op: str) -> tuple[str, ...]:
    if op in OF_ANY:
        return ANY
    return NUMBERS if op in OF_NUMBERS else FLOATS
