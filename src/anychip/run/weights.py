"""Weights onto the device, one at a time, with progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.contract.memory import Memory
from anychip.contract.registration import Chip
from anychip.contract.tensor import Tensor
from anychip.contract.weights import HostWeight, Weight
from anychip.model.checkpoint import Checkpoint
from anychip.model.formats import convert, plain_weight
from anychip.model.layers.attention import table_name
from anychip.model.rope import cos_sin_table
from anychip.model.sources import WeightSource
from anychip.run.model_plan import ModelPlan, WeightPlan

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, as they lie in the checkpoint."""


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


def load_weights(
    checkpoint: Checkpoint, plan: ModelPlan, chip: Chip, progress: Progress
) -> DeviceWeights:
    """Read, convert where the plan says so, pack. On failure nothing stays allocated."""
    loaded = DeviceWeights({}, {})
    done, total = 0, checkpoint.total_bytes
    try:
        for weight in plan.weights:
            loaded.weights[weight.source.name] = _prepare(checkpoint, weight, chip)
            checkpoint.give_back()
            done += _file_bytes(checkpoint, weight.source)
            progress(done, total)
        for source in plan.constants:
            (values,) = checkpoint.read(source)
            held = plan.constant_dtype(source)
            loaded.constants[source.name] = _constant(chip.memory, convert(values, held), held)
        checkpoint.give_back()
        for index, rope in enumerate(plan.config.ropes):
            table = plain_weight(cos_sin_table(rope, plan.context_length))
            loaded.constants[table_name(index)] = _constant(chip.memory, table, table.format)
        chip.queue.synchronize(None)
    except BaseException:
        loaded.release(chip)
        raise
    progress(total, total)
    return loaded


def _prepare(checkpoint: Checkpoint, plan: WeightPlan, chip: Chip) -> Weight:
    parts = checkpoint.read(plan.source)
    if plan.converted is not None:
        parts = tuple(convert(part, plan.converted) for part in parts)
    return chip.weights.prepare(parts, plan.source.uses or frozenset())


def _file_bytes(checkpoint: Checkpoint, source: WeightSource) -> int:
    return sum(map(checkpoint.nbytes, source.parts))


def _constant(memory: Memory, values: HostWeight, dtype: str) -> Tensor:
    tensor = Tensor(values.shape, DType(dtype), buffer=memory.allocate(values.data.nbytes))
    memory.copy_in(tensor, values.data)
    return tensor
