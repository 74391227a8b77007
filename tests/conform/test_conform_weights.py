"""O12: which formats it asks about, what declining them makes of its answer, scales of int8."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anychip.chips.cpu.memory_weights import CpuWeights
from anychip.chips.cpu.registration import CpuChip
from anychip.chips.fake.operators import FakeWeights
from anychip.chips.fake.registration import FakeChip
from anychip.conform import operators
from anychip.conform.proof import Proof, Status, prove
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.weights import HostWeight, WeightUse
from conform.defective import subject_of


def proof(cls: type, op: str, **options: str) -> Proof:
    """What O12 finds of one operator."""
    subject = subject_of(cls, **options)
    try:
        check = next(c for c in operators.checks(subject) if c.key == f"O12 {op}")
        return prove(check, subject)
    finally:
        subject.close()


def declining(*never: str) -> type[FakeChip]:
    """A chip that makes no experts of these formats, and refuses them by an error if asked to."""

    class Picky(FakeWeights):
        def declines(self, formats, shapes, uses):
            if WeightUse.EXPERTS in uses and set(formats) & set(never):
                return "no experts of that kind"
            return None

        def plan(self, formats, shapes, uses):
            reason = self.declines(formats, shapes, uses)
            if reason is not None:
                raise invalid("fake", ChipLayer.MEMORY, reason)
            return super().plan(formats, shapes, uses)

    class Declining(FakeChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.weights = Picky(self.memory)

    return Declining


@pytest.mark.parametrize("op", ["grouped_linear", "expert_mlp"])
def test_formats_that_are_declined_are_told_and_not_judged(op):
    found = proof(declining("float16", "bfloat16"), op)
    assert found.status is Status.PASS, found
    assert found.figures["formats"] == 1
    assert "float16, bfloat16 declined: no experts of that kind" in found.text


def test_a_chip_that_declines_them_all_is_not_judged():
    found = proof(declining("float32", "float16", "bfloat16"), "expert_mlp")
    assert found.status is Status.UNSUPPORTED, found
    assert "no experts of that kind" in found.text
    assert proof(declining("float32", "float16", "bfloat16"), "linear").status is Status.PASS


def rounding(times: float) -> type[CpuChip]:
    """The cpu chip, which takes a static scale of activations for `times` as much."""

    class Scaled(CpuWeights):
        def prepare(self, parts, uses):
            return super().prepare(tuple(_scaled(part, times) for part in parts), uses)

    class Rounding(CpuChip):
        def __init__(self, values) -> None:
            super().__init__(values)
            self.weights = Scaled(self.weights._store, self.weights._kernels)

        def capabilities(self):
            return replace(super().capabilities(), weight_formats=("float32", "w8a8_static"))

    return Rounding


def _scaled(part: HostWeight, times: float) -> HostWeight:
    if part.format != "w8a8_static":
        return part
    raw = np.frombuffer(part.data, np.uint8).copy()
    raw[:4] = (raw[:4].view("<f4") * np.float32(times)).view(np.uint8)
    return replace(part, data=raw.data)


@pytest.mark.parametrize("op", ["linear", "mlp_block"])
def test_activations_are_rounded_by_the_scale_that_was_given(op):
    assert proof(rounding(1.0), op, memory="0").status is Status.PASS
    found = proof(rounding(0.25), op, memory="0")
    assert found.status is Status.FAIL and "w8a8_static" in found.text, found
