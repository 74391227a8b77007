"""Recurrent state on the cpu chip: every case and size, on every instruction set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anychip.conform.operator_calls import run_case, wrong
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError
from anychip.ops.cases import cases
from anychip.ops.cases.grid import grid, outliers, sized

OPS = pytest.mark.parametrize("op", ["causal_conv1d", "gated_delta_rule"])
SLOW = ("T=1025", "T=129", "K=128 V=128")


def implementation(calls, op):
    return calls.chip.operators.of(op)[0]


@OPS
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_every_case_agrees_with_the_oracle(each, op, dtype):
    own = implementation(each, op)
    assert own.id.startswith(each.chip.operators.of("rms_norm")[0].id.partition(".")[0])
    asked = [*cases(op), *grid(op), outliers(op)]
    for case in asked:
        if not any(part in case.name for part in SLOW) or dtype is DType.FLOAT32:
            case = case.with_dtype(dtype)
            problem = wrong(case, run_case(each.chip, case, own), own)
            assert problem is None, f"{case.name}: {problem}"


@OPS
def test_another_state_would_be_seen(cpu, op):
    case = sized(op, T=3, past=9)
    other = replace(case, inputs={**case.inputs, "state": case.inputs["state"] * 1.5})
    own = implementation(cpu, op)
    assert wrong(case, run_case(cpu.chip, case, own), own) is None
    assert wrong(case, run_case(cpu.chip, other, own), own) is not None


@OPS
@pytest.mark.parametrize("threads", [1, 2])
def test_a_token_is_the_same_to_the_bit_in_every_chunk_and_batch(chips, op, threads):
    calls = chips(threads=threads)
    own, whole = implementation(calls, op), sized(op, T=9, past=0, B=3)
    together = run_case(calls.chip, whole, own).outcome
    state, rows = whole.inputs["state"], []
    for start, count in ((0, 1), (1, 5), (6, 3)):
        part = chunk(whole, start, count, state)
        found = run_case(calls.chip, part, own).outcome
        state = found["state"]
        rows.append(found["y"].reshape(3, count, *found["y"].shape[1:]))
    y = np.concatenate(rows, axis=1).reshape(together["y"].shape)
    assert y.tobytes() == together["y"].tobytes()
    assert state.tobytes() == together["state"].tobytes()


def chunk(case, start, count, state):
    """Tokens start .. start + count - 1 of each of three sequences of nine."""
    picked = np.concatenate([np.arange(9 * b + start, 9 * b + start + count) for b in range(3)])
    given = {**case.inputs, "state": state, "cu_q": np.arange(4, dtype=np.int32) * count}
    for name in ("x", "q", "k", "v", "decay", "beta", "positions", "token_rows"):
        if name in given:
            given[name] = np.ascontiguousarray(case.inputs[name][picked])
    return replace(case, inputs=given, control=None)


@OPS
@pytest.mark.parametrize("name", ["state_from", "state_to"])
def test_a_slot_outside_of_the_state_is_refused(cpu, op, name):
    case = sized(op, T=1, past=3)
    slots = np.full_like(case.inputs[name], len(case.inputs["state"]))
    given = {n: v for n, v in {**case.inputs, name: slots}.items() if v is not None}
    with pytest.raises(ChipError, match=r"slot is outside"):
        cpu.call(op, dict(case.attrs), **given)
