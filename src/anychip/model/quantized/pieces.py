"""The tensors of one linear by their endings, each checked as it is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anychip.contract.tensor import Shape
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.formats import Floats
from anychip.model.mapped import TensorEntry, missing_tensor

SCALE_DTYPES = ("float16", "bfloat16", "float32")
_NUMPY: dict[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "F8_E4M3": np.uint8,
    "I8": np.int8,
    "U8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
}
"""Dtype as TensorEntry names it -> numpy's; small floats come as their bytes."""


class RawTensors(Protocol):
    """Tensors as they lie in the files."""

    path: Path
    tensors: dict[str, TensorEntry]

    def view(self, name: str) -> memoryview:
        """A tensor's bytes."""


@dataclass(frozen=True)
class Pieces:
    """module: the linear's name without an ending such as ".qweight"."""

    store: RawTensors
    module: str

    def has(self, ending: str) -> bool:
        """Whether there is such a tensor."""
        return self.module + ending in self.store.tensors

    def entry(self, ending: str, formats: tuple[str, ...]) -> TensorEntry:
        """What is known of a tensor, which must have one of these dtypes."""
        entry = self.store.tensors.get(self.module + ending)
        if entry is None:
            raise missing_tensor(self.module + ending, self.store.path)
        if entry.format not in formats:
            raise self.error(ending, f"has dtype {entry.format}, {' or '.join(formats)} is needed")
        return entry

    def matrix(self, ending: str, formats: tuple[str, ...]) -> Shape:
        """The shape of a tensor that must have two dimensions, none of them 0."""
        shape = self.entry(ending, formats).shape
        if len(shape) != 2 or not all(shape):
            raise self.error(ending, f"has shape {shape}, a matrix is needed")
        return shape

    def shaped(self, ending: str, formats: tuple[str, ...], *shapes: Shape) -> TensorEntry:
        """What is known of a tensor, which must have one of these shapes."""
        entry = self.entry(ending, formats)
        if entry.shape not in shapes:
            wanted = " or ".join(map(str, dict.fromkeys(shapes)))
            raise self.error(ending, f"has shape {entry.shape}, its weight needs {wanted}")
        return entry

    def array(self, ending: str) -> npt.NDArray[Any]:
        """A tensor's numbers as a read-only view. Its dtype was asked for by `entry` before."""
        entry = self.store.tensors[self.module + ending]
        found = np.frombuffer(self.store.view(self.module + ending), _NUMPY[entry.format])
        return found.reshape(entry.shape)

    def floats(self, ending: str) -> Floats:
        """A tensor's numbers in float32."""
        return self.array(ending).astype(np.float32)

    def number(self, ending: str, formats: tuple[str, ...]) -> float:
        """The only number of a tensor."""
        entry = self.entry(ending, formats)
        if math.prod(entry.shape) != 1:
            raise self.error(ending, f"has shape {entry.shape}, one number is needed")
        return float(self.array(ending).reshape(())[()])

    def names(self, *endings: str) -> tuple[str, ...]:
        """Those of these tensors that there are, by name."""
        return tuple(self.module + ending for ending in endings if self.has(ending))

    def nbytes(self, *endings: str) -> int:
        """Their bytes in the files."""
        return sum(self.store.tensors[name].nbytes for name in self.names(*endings))

    def error(self, ending: str, message: str) -> CheckpointError:
        """What is wrong with a tensor."""
        return CheckpointError(message, path=self.store.path, tensor=self.module + ending)

    def unsupported(self, ending: str, message: str) -> UnsupportedModel:
        """Why a sound tensor is not served."""
        return UnsupportedModel(message, path=self.store.path, tensor=self.module + ending)


def modules(tensors: Mapping[str, TensorEntry], ending: str) -> list[str]:
    """Names of linears that have a tensor with this ending."""
    return [name.removesuffix(ending) for name in tensors if name.endswith(ending)]
