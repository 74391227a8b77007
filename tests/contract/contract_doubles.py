"""A chip that is complete and does nothing, to be changed by the tests."""

from __future__ import annotations

from anychip.contract.build import Build, Finding, Verdict
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, ErrorFact, ErrorKind
from anychip.contract.execution import Queue
from anychip.contract.memory import Memory
from anychip.contract.operators import OperatorTable
from anychip.contract.registration import Capabilities, Chip, Device, Probe


class NullMemory(Memory):
    def allocate(self, nbytes): ...

    def free(self, buffer): ...

    def copy_in(self, target, source): ...

    def copy_out(self, source, target): ...

    def info(self): ...

    def fill(self, target, byte): ...


class NullQueue(Queue):
    def synchronize(self, timeout): ...


class NullBuild(Build):
    def requires(self):
        return ()

    def versions(self):
        return {}

    def check(self):
        return ()


class NullChip(Chip):
    """Derive from it, or register it, as a test needs."""

    vendor = "tests"

    def __init__(self):
        self.memory, self.queue, self.build = NullMemory(), NullQueue(), NullBuild()
        self.operators = OperatorTable()

    @classmethod
    def probe(cls):
        return Probe((Device(0, "nothing"), Device(1, "nothing more")), versions={"sdk": "7"})

    @classmethod
    def open(cls, device, options):
        return cls()

    @classmethod
    def check_device(cls, device, timeout):
        return Finding("null", Verdict.UNKNOWN, "nothing to check")

    @classmethod
    def map_error(cls, code):
        return ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, f"code {code}")

    def capabilities(self):
        floats = (DType.FLOAT32,)
        return Capabilities(activation_dtypes=floats, cache_dtypes=floats, facts={"size": "0"})

    def close(self): ...
