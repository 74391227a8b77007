"""The fused rungs of the cpu chip: right by the oracle, and a row's result is its own."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import BF16, LEVELS, normal, relative, same_bits
from cpu_weights import FORMATS, make_weight, whole_columns

from anychip.conform.operator_calls import judged, run_case, spec_of
from anychip.conform.operator_cases import asked, types_of
from anychip.contract.weights import WeightUse

EPS = 1e-5
LINEAR = frozenset({WeightUse.LINEAR})


@pytest.fixture(params=LEVELS)
def cpu(request, chips):
    return chips(threads=2, isa=request.param)


@pytest.mark.parametrize("op", ["mlp_block", "attention_block"])
def test_block_agrees_with_the_oracle_in_every_dtype(cpu, op):
    impl, *of_int8 = cpu.chip.operators.of(op)
    assert all("_int8_" in other.id for other in of_int8)
    types = types_of(cpu.chip, op)
    ran = set()
    for one in types:
        for case in asked(cpu.chip, op, one):
            if impl.declines(spec_of(cpu.chip, case)) is None:
                found = run_case(cpu.chip, case, impl)
                verdict = judged(case, found.outcome, impl)
                assert found.damaged is None, case.name
                assert verdict.ok, f"{case.name} in {one.text(op)}: {verdict.text}"
                ran.add(one)
    assert ran == set(types)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("rows", "width"), [(1, 64), (20, 64), (40, 1344), (200, 1344)])
def test_mlp_agrees_with_its_parts_in_every_format(cpu, name, rows, width):
    """Few rows and many, one part of K and several: each has a way of its own through the tiles."""
    width, inner = whole_columns(name, width), whole_columns(name, 96)
    gate_up, values = make_weight(name, 2 * inner, width, seed=1)
    down, back = make_weight(name, width, inner, seed=2)
    x, norm = normal(3, rows, width, dtype=BF16), normal(4, width)
    weights = {
        "gate_up": cpu.weight(name, (2 * inner, width), gate_up),
        "down": cpu.weight(name, (width, inner), down),
    }
    y, _ = cpu.call("mlp_block", {"eps": EPS}, x=x, residual=None, norm=norm, **weights)
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + EPS) * norm
    gate, up = np.split(exact @ values.T, 2, axis=1)
    wanted = gate / (1 + np.exp(-gate)) * up @ back.T
    assert relative(y, wanted) < 1e-2 < relative(y, wanted[:, ::-1])


class Mlp:
    """One block of 64 columns and 96 inner ones in bfloat16, called with any rows."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.norm = normal(1, 64)
        self.parts = {
            "gate_up": normal(2, 192, 64, dtype=BF16),
            "down": normal(3, 64, 96, dtype=BF16),
        }

    def __call__(self, x, residual):
        weights = {
            name: self.cpu.weight("bfloat16", data.shape, data) for name, data in self.parts.items()
        }
        given = {"x": x, "residual": residual, "norm": self.norm, **weights}
        return self.cpu.call("mlp_block", {"eps": EPS}, **given)


@pytest.mark.parametrize("rows", [2, 33, 513, 1030])
def test_a_row_has_the_same_bits_alone_and_in_any_company(cpu, rows):
    """Over several chunks of rows, tiles with a rest, and one row."""
    mlp = Mlp(cpu)
    x, residual = (normal(seed, rows, 64, dtype=BF16) for seed in (4, 5))
    y, total = mlp(x, residual)
    for row in (0, rows // 2, rows - 1):
        alone_y, alone_total = mlp(x[row : row + 1], residual[row : row + 1])
        assert same_bits(alone_y, y[row : row + 1]) and same_bits(alone_total, total[row : row + 1])
    assert relative(y[1:], y[:-1]) > 0.5, "rows differ, so that equal bits mean something"


def test_without_a_residual_the_sum_is_x(cpu):
    x = normal(6, 5, 64, dtype=BF16)
    _, total = Mlp(cpu)(x, None)
    assert same_bits(total, x)


def test_an_unknown_activation_is_declined(cpu):
    impl = cpu.chip.operators.of("mlp_block")[0]
    case = next(c for c in asked(cpu.chip, "mlp_block", types_of(cpu.chip, "mlp_block")[0]))
    spec = spec_of(cpu.chip, case)
    assert impl.declines(spec) is None
    spec.attrs["activation"] = "relu"
    assert impl.declines(spec) == "activation relu, it covers silu, gelu_tanh"
