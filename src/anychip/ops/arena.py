"""Arena: offsets for the values that live within a program, by liveness.

The arena is a row of lanes. Values whose lives do not overlap share a lane, which is as large as
the largest of them. Which lane a value takes depends on liveness and on the sizes behind the
first dimension alone, so a program with fewer tokens or rows never needs more than one with more:
what was measured for the largest step is enough for all. (Recipes unroll differently for other
sizes; where they are used, lanes are chosen by bytes, which is tighter and proves nothing.)

Narrow lanes come first, and a call's workspace begins behind what is alive during the call: the
wide lane, which logits need at the end, is a layer's scratch until then.
"""

from __future__ import annotations

import math
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


@dataclass(eq=False)
class _Lane:
    """width: of its widest value, bytes. last: the last node that needs what is in it now."""

    width: int = 0
    nbytes: int = 0
    last: int = -1

    def take(self, width: int, nbytes: int, last: int) -> None:
        """Make room for one more value that lives until node `last`."""
        self.width, self.nbytes = max(self.width, width), max(self.nbytes, nbytes)
        self.last = last


def plan_arena(program: Program) -> ArenaPlan:
    """A storage lives from the node that writes it to the last one that reads it; results live to
    the end. An output takes over the lane of an input that dies here where the implementation
    says that the two may share memory. Only one workspace is in use at a time.
    """
    last = _last_uses(program)
    lanes: list[_Lane] = []
    homes: dict[Storage, _Lane] = {}
    for index, node in enumerate(program.nodes):
        for name, value in node.outputs.items():
            storage = value.storage
            width = storage.nbytes if program.has_recipes else _width(value)
            lane = _dying_alias(node, name, homes, index) or _free_lane(lanes, width, index)
            lane.take(width, storage.nbytes, last.get(storage, index))
            homes[storage] = lane
    starts, end = _starts(lanes)
    offsets = {storage: starts[lane] for storage, lane in homes.items()}
    workspaces = _workspaces(program, offsets, last)
    ends = (offset + _aligned(nbytes) for offset, nbytes in workspaces.values())
    return ArenaPlan(offsets, workspaces, max(end, *ends, 0))


def _workspaces(
    program: Program, offsets: dict[Storage, int], last: dict[Storage, int]
) -> dict[int, tuple[int, int]]:
    """Offset and bytes of each node's workspace, behind all that is alive there.

    Each term of an offset is a size that falls with tokens and rows, so the whole does too.
    """
    found: dict[int, tuple[int, int]] = {}
    alive: list[tuple[int, int]] = []  # the last node that needs it, where it ends
    for index, node in enumerate(program.nodes):
        alive = [each for each in alive if each[0] >= index]
        for value in node.outputs.values():
            storage = value.storage
            alive.append((last.get(storage, index), offsets[storage] + storage.nbytes))
        implementation = node.decision.implementation
        nbytes = implementation.workspace(node.spec) if implementation else 0
        if nbytes:
            found[index] = (_aligned(max((end for _, end in alive), default=0)), nbytes)
    return found


def _width(value: Value) -> int:
    return math.prod(value.shape[1:]) * value.dtype.itemsize


def _free_lane(lanes: list[_Lane], width: int, index: int) -> _Lane:
    """The narrowest free lane that is wide enough, else the widest, else a new one."""
    free = [lane for lane in lanes if lane.last < index]
    enough = [lane for lane in free if lane.width >= width]
    if enough:
        return min(enough, key=lambda lane: lane.width)
    if free:
        return max(free, key=lambda lane: lane.width)
    lanes.append(_Lane())
    return lanes[-1]


def _starts(lanes: list[_Lane]) -> tuple[dict[_Lane, int], int]:
    """Where each lane begins, the narrowest first, and where the last one ends."""
    starts: dict[_Lane, int] = {}
    end = 0
    for lane in sorted(lanes, key=lambda lane: lane.width):
        starts[lane] = end
        end += _aligned(max(lane.nbytes, 1))
    return starts, end


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _dying_alias(node: Node, output: str, homes: dict[Storage, _Lane], index: int) -> _Lane | None:
    """The lane of an input whose memory the output may take over."""
    implementation = node.decision.implementation
    for out, source in implementation.aliases if implementation else ():
        value = node.inputs[source]
        if out != output or not isinstance(value, Value) or not value.is_contiguous:
            continue
        lane = homes.get(value.storage)
        size = node.outputs[output].storage.nbytes
        if lane is not None and lane.last == index and value.storage.nbytes == size:
            return lane
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
