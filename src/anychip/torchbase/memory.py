"""Memory: a buffer is a byte tensor on the device, a copy is torch's copy."""

from __future__ import annotations

import torch

from anychip.contract.errors import ChipError, ChipLayer, invalid, out_of_memory
from anychip.contract.host import CoreUse, host_facts, resident
from anychip.contract.memory import Memory, MemoryInfo, PoolStatistics, Traffic
from anychip.contract.optional import Reading, Telemetry
from anychip.contract.tensor import Buffer, Tensor
from anychip.torchbase.queue import Stream

STAGE = 16 << 20
"""Bytes that are copied in at a time from memory that cannot be written (a mapped file)."""


class TorchTelemetry(Telemetry):
    """The memory's account; of a host, also how busy this process keeps torch's threads."""

    def __init__(self, memory: TorchMemory, *, is_host: bool) -> None:
        self._memory = memory
        self._cores = CoreUse(torch.get_num_threads()) if is_host else None

    def read(self) -> Reading:
        """What torch tells without a vendor's package: of a card, memory alone."""
        share = None if self._cores is None else self._cores.share()
        return Reading(self._memory.info(), share)


class TorchMemory(Memory):
    """Torch's allocator behind an account. limit: bytes that may be handed out, 0: no limit.

    A freed buffer's memory returns to torch when the last prepared launch that uses it is gone.
    What torch's operators allocate for themselves is not in the account.
    """

    alignment = 64

    def __init__(self, stream: Stream, limit: int) -> None:
        self._stream, self._limit = stream, limit
        self._chip, self._device = stream.device.chip, stream.device
        self._used, self._resident = 0, resident() if stream.device.is_host else 0
        self._live: dict[int, Buffer] = {}
        self._bytes_in = self._bytes_out = 0
        self._seconds_in = self._seconds_out = 0.0
        self.unified = stream.device.is_host or stream.device.torch.type == "mps"

    def allocate(self, nbytes: int) -> Buffer:
        """Aligned as torch aligns: to 64 bytes at least."""
        if nbytes < 0:
            raise self._refused(f"an allocation of {nbytes} bytes")
        free = self.info().free
        if nbytes > free:
            raise out_of_memory(self._chip, nbytes, free)
        try:
            raw = torch.empty(nbytes, dtype=torch.uint8, device=self._device.torch)
        except RuntimeError as error:  # torch's out of memory is one, and nothing else can fail
            raise out_of_memory(self._chip, nbytes, self.info().free) from error
        buffer = Buffer(raw, nbytes)
        self._live[id(buffer)] = buffer
        self._used += nbytes
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Back to torch's allocator, which reuses it behind the queued work."""
        if buffer.freed or self._live.pop(id(buffer), None) is not buffer:
            text = f"a buffer of {buffer.nbytes} bytes was freed twice or belongs to another chip"
            raise self._refused(text)
        buffer.freed, buffer.handle = True, None
        self._used -= buffer.nbytes

    def copy_in(self, target: Tensor, source: memoryview) -> None:
        """Done with `source` on return; memory that cannot be written is staged."""
        raw, data = self._bytes(target, source, "copy_in")
        if raw.numel() == 0:
            return
        self._seconds_in += self._device.timed(lambda: _fill_from(raw, data))
        self._bytes_in += raw.numel()

    def copy_out(self, source: Tensor, target: memoryview) -> None:
        """Waits for the queue; late errors come out here."""
        if target.readonly:
            raise self._refused("copy_out into read-only memory")
        raw, data = self._bytes(source, target, "copy_out")
        if raw.numel() == 0:
            self._stream.wait(None)
            return
        host = torch.frombuffer(data, dtype=torch.uint8)
        self._stream.waiting(lambda: self._fetch(host, raw))

    def _fetch(self, host: torch.Tensor, raw: torch.Tensor) -> None:
        self._seconds_out += self._device.timed(lambda: host.copy_(raw))
        self._bytes_out += raw.numel()

    def info(self) -> MemoryInfo:
        """The driver's numbers, or the host's where the device's memory is the host's."""
        free, total, source = self._measured()
        if self._limit and self._limit < total:
            total, source = self._limit, "chip option memory"
            free = min(free, total - self._used)
        free = max(free, 0)
        largest = max(free - self._device.in_pieces(), 0)
        return MemoryInfo(total, total - free, free, largest, source)

    def traffic(self) -> Traffic:
        """The core's copies, and what operators read back by themselves, of which nobody knows the
        seconds."""
        read = self._bytes_out + self._stream.read_back
        return Traffic(self._bytes_in, read, self._seconds_in, self._seconds_out)

    def _measured(self) -> tuple[int, int, str]:
        told = self._device.memory()
        if told is not None:
            return told[0], told[1], f"torch.{self._device.torch.type}"
        if self._device.is_host:
            host = host_facts()
            untouched = max(self._used - max(resident() - self._resident, 0), 0)
            free = min(host.total - self._used, host.available - untouched)
            return free, host.total, host.source
        if not self._limit:
            text = f"torch tells no memory of '{self._device.name}'"
            raise self._refused(f"{text}: say how much there is with --chip-option memory=SIZE")
        return self._limit - self._used, self._limit, "chip option memory"

    def fill(self, target: Tensor, byte: int) -> None:
        """In call order."""
        if not 0 <= byte <= 255:
            raise self._refused(f"fill: byte {byte} must lie in 0 .. 255")
        if not target.is_contiguous:
            raise self._refused("fill: the tensor must be contiguous")
        self._raw(target).fill_(byte)

    def _bytes(
        self, tensor: Tensor, host: memoryview, what: str
    ) -> tuple[torch.Tensor, memoryview]:
        """Both sides as bytes, once they are known to be contiguous and equally long."""
        if not (tensor.is_contiguous and host.c_contiguous) or tensor.nbytes != host.nbytes:
            text = f"{what}: {host.nbytes:,} bytes on the host, {tensor.nbytes:,} on the device"
            raise self._refused(f"{text}; both must be contiguous and as long")
        raw = self._raw(tensor)
        return raw, host.cast("B") if host.nbytes else memoryview(b"")

    def _raw(self, tensor: Tensor) -> torch.Tensor:
        raw = tensor.buffer.handle
        if tensor.buffer.freed or not isinstance(raw, torch.Tensor):
            raise self._refused("a tensor's buffer was freed or belongs to another chip")
        return raw[tensor.offset : tensor.offset + tensor.nbytes]

    def _refused(self, text: str) -> ChipError:
        return invalid(self._chip, ChipLayer.MEMORY, text)


class PooledTorchMemory(TorchMemory):
    """Of a device whose freed blocks torch keeps."""

    def statistics(self) -> PoolStatistics:
        """As torch tells them: of this process, whoever in it asked."""
        return self._device.pool()


def torch_memory(stream: Stream, limit: int) -> TorchMemory:
    """With or without a pool, as the device has one."""
    kind = PooledTorchMemory if stream.device.has_pool else TorchMemory
    return kind(stream, limit)


def _fill_from(raw: torch.Tensor, data: memoryview) -> None:
    """Memory that cannot be written is staged: torch takes no view of it."""
    if not data.readonly:
        raw.copy_(torch.frombuffer(data, dtype=torch.uint8))
        return
    for at in range(0, len(data), STAGE):
        part = torch.frombuffer(bytearray(data[at : at + STAGE]), dtype=torch.uint8)
        raw[at : at + STAGE].copy_(part)
