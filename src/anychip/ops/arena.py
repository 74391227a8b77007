"""Arena: offsets for the values that live within a program, by liveness."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.ops.trace import Program
from anychip.ops.value import Storage, Value

ALIGNMENT = 64


@dataclass(frozen=True)
class ArenaPlan:
    """Byte offset of every arena storage and of every node's workspace, and the whole size."""

    offsets: dict[Storage, int]
    workspaces: dict[int, tuple[int, int]]  # node index -> offset, bytes
    nbytes: int


def plan_arena(program: Program) -> ArenaPlan:
    """First fit over the gaps between what is alive.

    A storage lives from the node that writes it to the last one that reads it; results live to
    the end; a workspace lives during its node.
    """
    last = _last_uses(program)
    alive: list[tuple[int, int, int]] = []  # offset, end, last node
    offsets: dict[Storage, int] = {}
    workspaces: dict[int, tuple[int, int]] = {}
    top = 0
    for index, node in enumerate(program.nodes):
        alive = [a for a in alive if a[2] >= index]
        wanted = [(v.storage, v.storage.nbytes) for v in node.outputs.values()]
        for storage, nbytes in wanted:
            offsets[storage] = _place(alive, nbytes, last.get(storage, index))
        implementation = node.decision.implementation
        scratch = implementation.workspace(node.spec) if implementation else 0
        if scratch:
            workspaces[index] = (_place(alive, scratch, index), scratch)
        top = max([top, *(end for _, end, _ in alive)])
    return ArenaPlan(offsets, workspaces, top)


def _last_uses(program: Program) -> dict[Storage, int]:
    last: dict[Storage, int] = {}
    for index, node in enumerate(program.nodes):
        for value in node.inputs.values():
            if isinstance(value, Value):
                last[value.storage] = index
    for value in program.results.values():
        last[value.storage] = len(program.nodes)
    return last


def _place(alive: list[tuple[int, int, int]], nbytes: int, last: int) -> int:
    size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
    offset = 0
    for start, end, _ in sorted(alive):
        if start - offset >= size:
            break
        offset = max(offset, end)
    alive.append((offset, offset + size, last))
    return offset
