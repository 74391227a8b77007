"""Arena: offsets for the values that live within a program, by liveness."""

from __future__ import annotations

from dataclasses import dataclass

from anychip.ops.trace import Node, Program
from anychip.ops.value import Storage, Value

ALIGNMENT = 64


@dataclass(frozen=True)
class ArenaPlan:
    """Byte offset of every arena storage and of every node's workspace, and the whole size."""

    offsets: dict[Storage, int]
    workspaces: dict[int, tuple[int, int]]  # node index -> offset, bytes
    nbytes: int


@dataclass
class _Block:
    """A stretch of the arena and the last node that needs it."""

    start: int
    end: int
    last: int


def plan_arena(program: Program) -> ArenaPlan:
    """First fit over the gaps between what is alive.

    A storage lives from the node that writes it to the last one that reads it; results live to
    the end; a workspace lives during its node. An output takes over the block of an input that
    dies here where the implementation says that the two may share memory.
    """
    last = _last_uses(program)
    alive: list[_Block] = []
    blocks: dict[Storage, _Block] = {}
    workspaces: dict[int, tuple[int, int]] = {}
    top = 0
    for index, node in enumerate(program.nodes):
        alive = [b for b in alive if b.last >= index]
        for name, value in node.outputs.items():
            storage, until = value.storage, last.get(value.storage, index)
            shared = _dying_alias(node, name, blocks, index)
            blocks[storage] = shared or _place(alive, storage.nbytes, until)
            blocks[storage].last = until
        implementation = node.decision.implementation
        scratch = implementation.workspace(node.spec) if implementation else 0
        if scratch:
            workspaces[index] = (_place(alive, scratch, index).start, scratch)
        top = max([top, *(b.end for b in alive)])
    return ArenaPlan({s: b.start for s, b in blocks.items()}, workspaces, top)


def _dying_alias(
    node: Node, output: str, blocks: dict[Storage, _Block], index: int
) -> _Block | None:
    """The block of an input whose memory the output may take over."""
    implementation = node.decision.implementation
    for out, source in implementation.aliases if implementation else ():
        value = node.inputs[source]
        if out != output or not isinstance(value, Value) or not value.is_contiguous:
            continue
        block = blocks.get(value.storage)
        size = node.outputs[output].storage.nbytes
        if block is not None and block.last == index and value.storage.nbytes == size:
            return block
    return None


def _last_uses(program: Program) -> dict[Storage, int]:
    last: dict[Storage, int] = {}
    for index, node in enumerate(program.nodes):
        for value in node.inputs.values():
            if isinstance(value, Value):
                last[value.storage] = index
    for value in program.results.values():
        last[value.storage] = len(program.nodes)
    return last


def _place(alive: list[_Block], nbytes: int, last: int) -> _Block:
    size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
    offset = 0
    for block in sorted(alive, key=lambda b: b.start):
        if block.start - offset >= size:
            break
        offset = max(offset, block.end)
    placed = _Block(offset, offset + size, last)
    alive.append(placed)
    return placed
