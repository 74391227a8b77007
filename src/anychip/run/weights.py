"""Weights onto the device, in the order in which they lie in the files, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.contract.weights import HostWeight, Weight
from anychip.model.checkpoint import Checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.formats import convert, plain_weight
from anychip.model.layers.attention import table_name
from anychip.model.quantize import into_format
from anychip.model.rope import cos_sin_table
from anychip.model.sources import WeightSource
from anychip.run.model_plan import ModelPlan
from anychip.run.weight_plan import WeightPlan

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, as they lie in the checkpoint."""

HELD_BYTES = 8 << 20
"""How much may be read, or on its way to the device, before host memory is given back."""


@dataclass
class DeviceWeights:
    """Packed weights, and plain constants (norms, biases, the rotation tables)."""

    weights: dict[str, Weight]
    constants: dict[str, Tensor]

    def release(self, chip: Chip) -> None:
        """Give everything back."""
        for weight in self.weights.values():
            chip.weights.release(weight)
        for tensor in self.constants.values():
            chip.memory.free(tensor.buffer)
        self.weights.clear()
        self.constants.clear()


def reading_order(checkpoint: Checkpoint, plan: ModelPlan) -> list[WeightPlan | WeightSource]:
    """Weights and constants by file and place in it: a file is read from its start to its end."""
    items: list[WeightPlan | WeightSource] = [*plan.weights, *plan.constants]
    return sorted(items, key=lambda item: min(checkpoint.places(_source(item))))


def visits(checkpoint: Checkpoint, plan: ModelPlan) -> list[str]:
    """The files in the order in which they are read; again where parts of a weight lie apart."""
    order = reading_order(checkpoint, plan)
    places = [place for item in order for place in checkpoint.places(_source(item))]
    return [name for name, _ in groupby(name for name, _ in places)]


def load_weights(
    checkpoint: Checkpoint, plan: ModelPlan, chip: Chip, progress: Progress
) -> DeviceWeights:
    """Read, convert or quantize where the plan says so, pack. On failure nothing stays allocated.

    Host memory beyond the chip's own: what one weight is converted to, and `HELD_BYTES` or the
    parts of one weight, whichever is more, on the way.
    """
    loaded = DeviceWeights({}, {})
    done, total = 0, checkpoint.total_bytes
    held = _Held(checkpoint, chip)
    try:
        for item in reading_order(checkpoint, plan):
            source = _source(item)
            nbytes = _file_bytes(checkpoint, source)
            held.take(max(nbytes, item.spec.nbytes) if isinstance(item, WeightPlan) else nbytes)
            if isinstance(item, WeightPlan):
                loaded.weights[source.name] = _prepare(checkpoint, item, chip, held)
            else:
                loaded.constants[source.name] = _read_constant(checkpoint, plan, item, chip.memory)
            done += nbytes
            if done < total:  # the end is told when all copies are done
                progress(done, total)
        for index, rope in enumerate(plan.config.ropes):
            table = plain_weight(cos_sin_table(rope, plan.context_length))
            loaded.constants[table_name(index)] = _constant(chip.memory, table, table.format)
        held.settle()
    except BaseException:
        loaded.release(chip)
        raise
    progress(total, total)
    return loaded


class _Held:
    """What the host holds of what was read: pages of the files, and copies that wait in the queue.

    Invariant: no more than `HELD_BYTES`, or one weight.
    """

    def __init__(self, checkpoint: Checkpoint, chip: Chip) -> None:
        self._checkpoint, self._chip, self._taken, self._pages = checkpoint, chip, 0, 0

    def take(self, nbytes: int) -> None:
        """So many bytes will be on their way to the device."""
        if self._taken + nbytes > HELD_BYTES:
            self.settle()
        self._taken += nbytes

    def pages(self, nbytes: int) -> None:
        """So many bytes of the files were read and are not needed again."""
        self._pages += nbytes
        if self._pages >= HELD_BYTES:
            self._pages = 0
            self._checkpoint.give_back()

    def settle(self) -> None:
        """Wait until all copies are done; hold nothing."""
        self._taken = self._pages = 0
        self._chip.queue.synchronize(None)
        self._checkpoint.give_back()


def _source(item: WeightPlan | WeightSource) -> WeightSource:
    return item.source if isinstance(item, WeightPlan) else item


def _prepare(checkpoint: Checkpoint, plan: WeightPlan, chip: Chip, held: _Held) -> Weight:
    parts = checkpoint.parts(plan.source)
    if plan.converted is not None:
        parts = _converted(checkpoint, plan.source, plan.converted, held)
    return chip.weights.prepare(tuple(parts), plan.source.uses or frozenset())


def _converted(
    checkpoint: Checkpoint, source: WeightSource, format: str, held: _Held
) -> Iterator[HostWeight]:
    """Each part before the next one is read: what one is read into may be large."""
    names = (part.tensor for part in source.parts)
    for name, part in zip(names, checkpoint.parts(source), strict=True):
        try:
            yield into_format(part, format, held.pages)
        except CheckpointError as error:
            raise type(error)(str(error), path=checkpoint.path, tensor=name) from error


def _file_bytes(checkpoint: Checkpoint, source: WeightSource) -> int:
    return sum(map(checkpoint.nbytes, source.parts))


def _read_constant(
    checkpoint: Checkpoint, plan: ModelPlan, source: WeightSource, memory: Memory
) -> Tensor:
    (values,) = checkpoint.read(source)
    dtype = plan.constant_dtype(source)
    return _constant(memory, convert(values, dtype), dtype)


def _constant(memory: Memory, values: HostWeight, dtype: str) -> Tensor:
    tensor = Tensor(values.shape, DType(dtype), buffer=memory.allocate(values.data.nbytes))
    memory.copy_in(tensor, values.data)
    return tensor
