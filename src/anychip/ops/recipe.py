"""An operator's recipe as an implementation: the composed path of one call, on the chip itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anychip.contract.cache import CacheSpec, CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.formats import BLOCK_FORMATS, GROUPED, W8A8
from anychip.contract.memory import Memory
from anychip.contract.operators import Call, CallSpec, DtypeRow, Implementation, ImplKind, Launch
from anychip.contract.operators import Value as Operand
from anychip.contract.registration import Chip
from anychip.contract.signature import Arg, ArgKind, Spec
from anychip.contract.tensor import Buffer, IndexPair, Tensor, TensorSpec
from anychip.contract.weights import Weight, WeightSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.ops.arena import plan_arena
from anychip.ops.bind import Operands, bind
from anychip.ops.decide import Decider
from anychip.ops.trace import Ops, Program
from anychip.ops.value import CacheRef, Ref, Storage, Value, WeightRef

COMPOSED = ImplKind.COMPOSED.value
_FORMATS = (*BLOCK_FORMATS, *W8A8, *(kind.name for kind in GROUPED))
_EVERY_TYPE = (*(d.value for d in NUMPY_DTYPES), *_FORMATS)


class Recipe:
    """A context manager that gives the implementation; it holds scratch memory until its end."""

    def __init__(self, chip: Chip, op: str) -> None:
        self._chip, self._op = chip, op
        self._decide = Decider(chip.operators, {op: COMPOSED}, proved=chip.operators.ids)
        self._scratch: list[Buffer] = []

    def __enter__(self) -> Implementation:
        arguments = (*CATALOGUE[self._op].inputs, *CATALOGUE[self._op].outputs)
        row = DtypeRow({a.dtype: _EVERY_TYPE for a in arguments if a.dtype.isupper()})
        return Implementation(
            op=self._op,
            id=COMPOSED,
            kind=ImplKind.COMPOSED,
            prepare=self._prepare,
            dtypes=(row,),
            when=self._declines,
            latent=True,
        )

    def __exit__(self, *error: object) -> None:
        while self._scratch:
            self._chip.memory.free(self._scratch.pop())

    def _declines(self, spec: CallSpec) -> str | None:
        try:
            traced(Ops(self._decide), spec)
        except ValueError as error:  # a primitive is missing, or a weight is packed
            return str(error)
        return None

    def _prepare(self, call: Call) -> Launch:
        program = traced(Ops(self._decide), call.spec)
        arena = self._chip.memory.allocate(plan_arena(program).nbytes)
        self._scratch.append(arena)
        bound = bind(program, operands_of(call.inputs, arena), self._chip.memory)

        def launch() -> None:
            for one in bound.launches:
                one()
            for name, tensor in bound.results.items():
                _move(self._chip.memory, call.outputs[name], tensor)

        return launch


def traced(ops: Ops, spec: CallSpec) -> Program:
    """The program of one call. Raises MissingOperator, and ValueError for a packed weight."""
    signature = CATALOGUE[spec.op]
    refs = {a.name: _symbol(a, spec.inputs.get(a.name)) for a in signature.inputs}
    found = getattr(ops, spec.op)(**refs, **spec.attrs)
    values = found if isinstance(found, tuple) else () if found is None else (found,)
    names = [a.name for a in signature.outputs]
    ops.program.results.update(zip(names, values, strict=True))
    return ops.program


def _symbol(arg: Arg, spec: Spec | None) -> Ref | None:
    if spec is None:
        return None
    if isinstance(spec, WeightSpec):
        return WeightRef(arg.name, spec)
    if isinstance(spec, CacheSpec):
        return CacheRef(0, spec)
    assert isinstance(spec, TensorSpec)
    kind = "index" if arg.kind is ArgKind.INDEX else "input"
    return Value(Storage(kind, arg.name, spec.nbytes), spec)


def operands_of(values: Mapping[str, Operand | None], arena: Buffer) -> Operands:
    """A call's operands as those of the program that consists of it."""
    given = values.items()
    return Operands(
        arena,
        indices={n: v for n, v in given if isinstance(v, IndexPair)},
        inputs={n: v for n, v in given if isinstance(v, Tensor)},
        weights={n: v for n, v in given if isinstance(v, Weight)},
        caches=tuple(v for _, v in given if isinstance(v, CacheView)),
    )


def _move(memory: Memory, target: Tensor, source: Tensor) -> None:
    """Through the host, since `memory.copy` is optional; both are contiguous."""
    raw = np.zeros(source.nbytes, np.uint8)
    if raw.size:
        memory.copy_out(source, raw.data)
        memory.copy_in(target, raw.data)
