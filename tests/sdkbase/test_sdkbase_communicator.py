"""The communicator over a library of collectives: a world of one, in the device's order."""

from __future__ import annotations

import numpy as np
import pytest
from small_device import Parts

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.tensor import Tensor
from anychip.sdkbase import communicator
from anychip.sdkbase.communicator import RankCommunicator


class OneRank:
    """Collectives between one rank: a copy on the device. wrong: a dtype that it spoils."""

    name, dtypes, identity_bytes = "cl", (DType.FLOAT32, DType.INT32), 16

    def __init__(self, parts, wrong=None):
        self.parts, self.wrong, self.entered = parts, wrong, []

    def identity(self):
        return b"i" * 16

    def enter(self, rank, world, identity):
        self.entered.append((rank, world, identity))

    def all_reduce(self, address, count, dtype, operation, queue):
        assert queue == self.parts.stream.handle
        if dtype is self.wrong:
            self.parts.library.call("dev_set", address, 0, count * dtype.itemsize)

    def all_gather(self, target, source, count, dtype, queue):
        self.parts.library.call("dev_move", target, source, count * dtype.itemsize, queue)


@pytest.fixture
def parts():
    opened = Parts()
    yield opened
    opened.close()


def ranks_of(parts, wrong=None):
    return RankCommunicator(OneRank(parts, wrong), parts.memory, parts.blocks.address, parts.stream)


def vector(parts, numbers, dtype=DType.FLOAT32):
    tensor = Tensor((len(numbers),), dtype, buffer=parts.memory.allocate(4 * len(numbers)))
    parts.memory.copy_in(tensor, np.array(numbers, dtype.value).data)
    return tensor


def test_one_rank_joins_alone_and_gathers_its_own(parts):
    ranks = ranks_of(parts)
    ranks.join(0, 1, "nobody meets")
    assert ranks._library.entered == [(0, 1, b"i" * 16)]
    source, target = vector(parts, [1, 2]), vector(parts, [0, 0])
    ranks.all_gather(target, source)
    ranks.all_reduce(source, "sum")
    ranks.barrier(5.0)
    host = np.zeros(2, np.float32)
    parts.memory.copy_out(target, host.data)
    assert host.tolist() == [1, 2]


@pytest.mark.parametrize("wrong", [DType.FLOAT32, DType.INT32])
def test_a_library_that_lies_about_a_type_is_found_out_when_it_joins(parts, wrong):
    text = f"of {wrong} gave .*this libcl has other numbers than known"
    with pytest.raises(ChipError, match=text) as caught:
        (ranks := ranks_of(parts, wrong)).join(0, 1, "")
    assert caught.value.fact.kind is ErrorKind.VERSION
    with pytest.raises(ChipError, match="a barrier before join"):
        ranks.barrier(1.0)
    assert parts.memory.statistics().used == 0


def test_a_device_without_room_refuses_before_ranks_are_entered(parts):
    whole, ranks = parts.memory.allocate(parts.memory.info().free), ranks_of(parts)
    with pytest.raises(ChipError, match="asked for 4,096 bytes, 0 free"):
        ranks.join(0, 1, "")
    assert ranks._library.entered == []
    parts.memory.free(whole)
    ranks.join(0, 1, "")


def test_what_cannot_work_is_refused(parts, monkeypatch):
    ranks, four = ranks_of(parts), vector(parts, [1, 2, 3, 4])
    early = (lambda: ranks.barrier(1), lambda: ranks.all_reduce(four, "sum"))
    for act in (*early, lambda: ranks.join(1, 1, "")):
        with pytest.raises(ChipError, match=r"before join|0 ranks joined before"):
            act()
    monkeypatch.setattr(communicator, "MEETING", 0.2)
    with pytest.raises(ChipError, match=r"not all ranks came within 0.2 s"):
        ranks.join(0, 2, f"tcp://127.0.0.1:{free_port()}")
    with pytest.raises(ChipError, match="ranks meet at tcp://host:port"):
        ranks.join(0, 2, "somewhere")
    ranks.join(0, 1, "")
    halves = Tensor((2,), DType.FLOAT16, buffer=four.buffer)
    for text, act in {
        "all_reduce by 'mean'; known: sum, max": lambda: ranks.all_reduce(four, "mean"),
        "CL has no type for float16; it has float32, int32": lambda: ranks.all_reduce(
            halves, "sum"
        ),
        "a tensor with gaps": lambda: ranks.all_reduce(four.view((2,), (2,)), "sum"),
        "from 1 ranks into": lambda: ranks.all_gather(four.view((2, 2)), four),
        "1 ranks joined before": lambda: ranks.join(0, 1, ""),
    }.items():
        with pytest.raises(ChipError, match=text):
            act()


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
