"""Scratch by liveness: what is alive at once never overlaps; what may be shared is."""

from __future__ import annotations

import dataclasses

import pytest

from anychip import hostops
from anychip.contract.dtype import DType
from anychip.contract.operators import OperatorTable
from anychip.ops.arena import plan_arena
from anychip.ops.decide import Decider
from anychip.ops.trace import Ops, Program
from anychip.ops.value import Value, given

ROWS = 16
BYTES = ROWS * 8 * 4


def table(*aliases: tuple[str, str], workspace: int = 0, op: str = "add_rms_norm") -> OperatorTable:
    """hostops, with aliases and workspace declared for one operator."""
    found = []
    for impl in hostops.table(lambda tensor: None):
        if impl.op == op:
            impl = dataclasses.replace(impl, aliases=aliases, workspace=lambda call: workspace)
        found.append(impl)
    return OperatorTable(tuple(found))


def traced(used: OperatorTable, *, keep_first: bool = False) -> Program:
    """a = exp(x); y, sum = add_rms_norm(a, x2); result y (and a)."""
    ops = Ops(Decider(used))
    x, other = (given("input", n, (ROWS, 8), DType.FLOAT32) for n in "xz")
    weight = given("constant", "w", (8,), DType.FLOAT32)
    first: Value = ops.exp(x)
    second: Value = ops.exp(other)
    y, total = ops.add_rms_norm(first, second, weight, eps=1e-5)
    ops.program.results["y"] = ops.add(y, total)
    if keep_first:
        ops.program.results["first"] = first
    return ops.program


def lifetimes(program: Program) -> dict:
    """Storage -> (first node, last node)."""
    born = {v.storage: i for i, n in enumerate(program.nodes) for v in n.outputs.values()}
    ends = dict(born)
    for i, node in enumerate(program.nodes):
        for value in node.inputs.values():
            if isinstance(value, Value) and value.storage in born:
                ends[value.storage] = i
    for value in program.results.values():
        ends[value.storage] = len(program.nodes)
    return {s: (born[s], ends[s]) for s in born}


def overlaps(program: Program, plan) -> list[tuple[str, str]]:
    """Pairs of storages that are alive at once (the node between them included) and share bytes."""
    found, spans = [], list(lifetimes(program).items())
    for i, (a, (a0, a1)) in enumerate(spans):
        for b, (b0, b1) in spans[i + 1 :]:
            start_a, start_b = plan.offsets[a], plan.offsets[b]
            apart = start_a + a.nbytes <= start_b or start_b + b.nbytes <= start_a
            if a0 <= b1 and b0 <= a1 and not apart:
                found.append((a.key, b.key))
    return found


def shared_scratch(program: Program, plan) -> list[tuple[int, str]]:
    """Nodes whose workspace shares bytes with what is alive there, or ends outside of the arena."""
    found = []
    for index, (offset, nbytes) in plan.workspaces.items():
        if offset + nbytes > plan.nbytes:
            found.append((index, "the end"))
        for storage, (born, end) in lifetimes(program).items():
            start = plan.offsets[storage]
            apart = offset + nbytes <= start or start + storage.nbytes <= offset
            if not apart and born <= index <= end:
                found.append((index, storage.key))
    return found


def test_nothing_alive_shares_memory() -> None:
    program = traced(table())
    plan = plan_arena(program)
    assert overlaps(program, plan) == []
    assert plan.nbytes == 4 * BYTES


def test_an_output_takes_over_an_input_that_dies_here() -> None:
    program = traced(table(("sum", "residual")))
    plan = plan_arena(program)
    node = next(n for n in program.nodes if n.spec.op == "add_rms_norm")
    shared = plan.offsets[node.outputs["sum"].storage]
    assert shared == plan.offsets[node.inputs["residual"].storage]
    assert plan.nbytes == 3 * BYTES


def test_an_input_that_lives_on_is_not_taken_over() -> None:
    program = traced(table(("sum", "x")), keep_first=True)
    assert overlaps(program, plan_arena(program)) == []


@pytest.mark.parametrize("scratch", [1, 1000, 5000])
def test_workspace_is_apart_from_everything_alive(scratch: int) -> None:
    program = traced(table(workspace=scratch))
    plan = plan_arena(program)
    assert [nbytes for _, nbytes in plan.workspaces.values()] == [scratch]
    assert shared_scratch(program, plan) == []


def test_workspace_is_apart_from_a_wide_input_that_dies_here() -> None:
    ops = Ops(Decider(table(workspace=BYTES, op="matmul")))
    x = given("input", "x", (ROWS, 192), DType.FLOAT32)
    head = given("constant", "head", (8, 192), DType.FLOAT32)
    ops.program.results["y"] = ops.matmul(ops.exp(x), head, transpose_b=True)
    plan = plan_arena(ops.program)
    assert len(plan.workspaces) == 1
    assert shared_scratch(ops.program, plan) == []


def test_a_workspace_lies_where_wide_values_will_be() -> None:
    """Logits are wide and come last: until then the layers' scratch has their place."""
    ops = Ops(Decider(table(workspace=20 * BYTES)))
    x = given("input", "x", (ROWS, 8), DType.FLOAT32)
    weight = given("constant", "w", (8,), DType.FLOAT32)
    y, total = ops.add_rms_norm(ops.exp(x), x, weight, eps=1e-5)
    head = given("constant", "head", (8 * 24, 8), DType.FLOAT32)
    ops.program.results["logits"] = ops.matmul(ops.add(y, total), head, transpose_b=True)
    plan = plan_arena(ops.program)
    assert overlaps(ops.program, plan) == shared_scratch(ops.program, plan) == []
    assert plan.nbytes < 20 * BYTES + 24 * BYTES
