"""A fake chip with operators that are wrong on demand, and `--backend crooked` that finds it.

Option wrong: operators whose results are off by a tenth, or by `factor` (integers by one). Option
fused: it brings a `mlp_block` of its own, right unless it is among the wrong ones. Options deadly
and endless: operators that crash, or never come back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from anychip.chips.fake.registration import FakeChip
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import DtypeRow, Implementation, OperatorTable
from anychip.contract.registration import Option, register_chip
from anychip.contract.tensor import IndexPair
from anychip.contract.weights import Weight
from anychip.ops.oracle import evaluate

FLOATS = ("float32", "bfloat16", "float16")


@register_chip("crooked", contract=(0, 1))
class CrookedChip(FakeChip):
    """See above."""

    options = (
        *FakeChip.options,
        Option("wrong", str, "", "operators that are wrong, separated by plus signs"),
        Option("factor", float, 1.1, "what wrong results are multiplied by"),
        Option("fused", bool, False, "bring a mlp_block"),
        Option("tolerance", float, 1.0, "tolerance that every operator declares"),
        Option("deadly", str, "", "an operator that crashes"),
        Option("endless", str, "", "an operator that never comes back"),
    )

    def __init__(self, values) -> None:
        super().__init__(values)
        self._stream = self.queue._stream
        found = list(self.operators.implementations)
        if values["fused"]:
            found.append(self._fused())
        self._factor = values["factor"]
        wrong = values["wrong"].split("+")
        found = [self._spoiled(i) if i.op in wrong else i for i in found]
        deadly = {values["deadly"]: _crash, values["endless"]: _hang}
        found = [
            dataclasses.replace(i, prepare=lambda call, op=i.op: deadly[op])
            if i.op in deadly
            else i
            for i in found
        ]
        found = [dataclasses.replace(i, tolerance=values["tolerance"]) for i in found]
        self.operators = OperatorTable(tuple(found))

    @classmethod
    def open(cls, device, options):
        return cls(options)

    def _spoiled(self, sound: Implementation) -> Implementation:
        def prepare(call):
            launch = sound.prepare(call)
            outputs = [self._store.array(t) for t in call.outputs.values()]

            def spoil() -> None:
                for array in outputs:
                    array[...] = array + 1 if array.dtype.kind == "i" else array * self._factor

            def both() -> None:
                launch()
                self._stream.launch("spoil", spoil)

            return both

        return dataclasses.replace(sound, prepare=prepare)

    def _fused(self) -> Implementation:
        def prepare(call):
            def run() -> None:
                inputs = {n: self._host(v) for n, v in call.inputs.items()}
                found = evaluate("mlp_block", inputs, call.attrs).outputs
                for tensor, values in zip(call.outputs.values(), found, strict=True):
                    self._store.array(tensor)[...] = values

            return lambda: self._stream.launch("mlp_block", run)

        signature = CATALOGUE["mlp_block"]
        variables = {a.dtype for a in (*signature.inputs, *signature.outputs) if a.dtype.isupper()}
        return Implementation(
            op="mlp_block",
            id="crooked.mlp_block",
            prepare=prepare,
            dtypes=(DtypeRow(dict.fromkeys(variables, FLOATS)),),
        )

    def _host(self, value):
        if isinstance(value, Weight):
            value = value.dense
        if isinstance(value, IndexPair):
            value = value.device
        return None if value is None else np.array(self._store.array(value))


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang() -> None:
    time.sleep(3600)


@contextlib.contextmanager
def installed(site: Path):
    """While it is open, `--backend crooked` finds the chip, as if pip had installed it."""
    info = site / "anychip_crooked-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: anychip-crooked\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[anychip.chips]\ncrooked = crooked_chip:CrookedChip\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        yield
