"""From kernels over arrays to implementations that a chip can list in its table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import (
    Call,
    Implementation,
    Launch,
    Value,
    plain_only,
    uniform_row,
)
from anychip.contract.signature import Signature
from anychip.contract.tensor import IndexPair, Tensor
from anychip.contract.weights import Weight
from anychip.hostops import attention, experts, network, primitives, recurrent, sampling
from anychip.hostops.attention import CacheArrays
from anychip.hostops.primitives import Kernel
from anychip.hostops.views import NUMPY_DTYPES, Array

ArrayOf = Callable[[Tensor], Array]

KERNELS: dict[str, Kernel] = {
    **primitives.KERNELS,
    **network.KERNELS,
    **experts.KERNELS,
    **attention.KERNELS,
    **recurrent.KERNELS,
    **sampling.KERNELS,
}
FLOATS = tuple(d.value for d in NUMPY_DTYPES if d.is_float)
NUMBERS = (*FLOATS, "int32")
ANY = tuple(d.value for d in NUMPY_DTYPES if d is not DType.FLOAT8_E4M3)
HELD = (*FLOATS, *(d.value for d in NUMPY_DTYPES if d.is_scaled))
"""What a cache may be held in."""
TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("copy", "cast", "fill", "where", "gather_rows", "scatter_rows"), ANY),
    **dict.fromkeys(("arange", "cumsum", "add", "sub", "mul", "maximum", "minimum"), NUMBERS),
    **dict.fromkeys(("lt", "le", "eq", "neg", "abs"), NUMBERS),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), NUMBERS),
}
"""What an operator's dtype variables may be; floats where it is not listed."""


def table(
    array_of: ArrayOf, *, ops: Collection[str] | None = None, prefix: str = "hostops"
) -> tuple[Implementation, ...]:
    """Implementations of every operator but the fused blocks, or of `ops` alone.

    array_of: the array over a tensor's memory; asked once a call, when it is prepared, so that
    memory must stay where it is. ids are "<prefix>.<op>". Plain weights in dense layout and
    caches in layout NHD only; others are declined. Raises KeyError for an operator not here.
    """
    names = KERNELS if ops is None else ops
    return tuple(
        _implementation(CATALOGUE[name], KERNELS[name], array_of, prefix) for name in names
    )


def _implementation(
    signature: Signature, kernel: Kernel, array_of: ArrayOf, prefix: str
) -> Implementation:
    def prepare(call: Call) -> Launch:
        inputs = {name: _host(value, array_of) for name, value in call.inputs.items()}
        outputs = {name: array_of(tensor) for name, tensor in call.outputs.items()}

        def launch() -> None:
            with np.errstate(all="ignore"):
                kernel(inputs, outputs, call.attrs)

        return launch

    return Implementation(
        op=signature.name,
        id=f"{prefix}.{signature.name}",
        prepare=prepare,
        dtypes=(uniform_row(signature, TYPES.get(signature.name, FLOATS), HELD),),
        when=plain_only,
        latent=True,
    )


def _host(value: Value | None, array_of: ArrayOf) -> Any:
    if isinstance(value, IndexPair):
        return array_of(value.device)
    if isinstance(value, CacheView):
        latent = value.spec.group.latent
        return CacheArrays(array_of(value.k), array_of(value.v), latent)
    if isinstance(value, Weight):
        return None if value.dense is None else array_of(value.dense)
    return None if value is None else array_of(value)
