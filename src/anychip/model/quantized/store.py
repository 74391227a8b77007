"""A folder whose quantized linears look like tensors of their own, named as plain ones are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported
from anychip.model.folder import Folder, read_json
from anychip.model.mapped import Place, TensorEntry
from anychip.model.quantized.awq import awq_linears
from anychip.model.quantized.compressed import compressed_linears
from anychip.model.quantized.float8 import fp8_linears
from anychip.model.quantized.gptq import gptq_linears
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.mxfp4 import mxfp4_linears
from anychip.model.quantized.pieces import RawTensors
from anychip.model.rows import rows_of

READERS: dict[str, Callable[[RawTensors, Mapping[str, Any]], dict[str, Linear]]] = {
    "gptq": gptq_linears,
    "awq": awq_linears,
    "compressed-tensors": compressed_linears,
    "fp8": fp8_linears,
    "mxfp4": mxfp4_linears,
}


_OLD_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Where AutoGPTQ and AutoAWQ wrote the settings before config.json had them."""


def quantization(folder: Folder) -> Mapping[str, Any] | None:
    """What the folder says of its quantization; None for a plain one."""
    for key in ("quantization_config", "compression_config"):
        described = folder.config.get(key)
        if described:
            break
    else:
        return _old_settings(folder)
    if not isinstance(described, dict):
        message = f"'{key}' is {described!r:.60}, not an object"
        raise CheckpointError(message, path=folder.path / "config.json")
    return described


def _old_settings(folder: Folder) -> Mapping[str, Any] | None:
    if not any(name.endswith(".qweight") for name in folder.tensors):
        return None
    for name, method in _OLD_FILES.items():
        if (folder.path / name).exists():
            return {"quant_method": method, **read_json(folder.path / name)}
    return None


class QuantizedFolder:
    """A folder that is read linear by linear: `tensors` has weights where files have their parts.

    Every tensor that a linear is made of is checked when the folder is opened; nothing but group
    orders and scales that float16 may not hold is read then. The linear read last is kept until
    `give_back`: networks take experts, or query, key and value, row by row out of one.
    """

    def __init__(self, folder: Folder, described: Mapping[str, Any]) -> None:
        self.path = folder.path
        self.metadata: dict[str, Any] = folder.metadata
        self._folder = folder
        self._linears = _linears(folder, described)
        self._last: tuple[str, HostWeight] | None = None
        used = {name for linear in self._linears.values() for name in linear.tensors}
        self.tensors = {n: e for n, e in folder.tensors.items() if n not in used}
        for name in self._linears:
            if name in self.tensors:
                raise CheckpointError(
                    "is there both plain and quantized", path=self.path, tensor=name
                )
            self.tensors[name] = self.entry(name)

    @property
    def further_layers(self) -> bool:
        """Whether the config tells of layers that predict further tokens."""
        return self._folder.further_layers

    def entry(self, name: str) -> TensorEntry:
        """What is known of a tensor; refuses a missing one and an unsupported format.

        The format of a linear that no format holds exactly says what it is; it is read as float32.
        """
        linear = self._linears.get(name)
        if linear is None:
            return self._folder.entry(name)
        return TensorEntry(linear.format, linear.shape, 0, linear.nbytes)

    def read(self, name: str) -> HostWeight:
        """A tensor's bytes: a view of the mapped file, or a linear put together."""
        linear = self._linears.get(name)
        if linear is None:
            return self._folder.read(name)
        if self._last is None or self._last[0] != name:
            self._last = None  # before the next one is there
            self._last = name, linear.read()
        return self._last[1]

    def rows(self, name: str, first: int, count: int) -> HostWeight:
        """Some rows of a tensor; what is put together, only as far as it must be."""
        linear = self._linears.get(name)
        if linear is None:
            return self._folder.rows(name, first, count)
        if linear.exact_rows is None:  # the next rows of it will be asked for soon
            return rows_of(self.read(name), first, count)
        return linear.exact_rows(first, count)

    def stack(self, names: tuple[str, ...]) -> None:
        """Be told that these make one weight: what cannot be stacked is converted from then on."""
        linears = [self._linears[name] for name in names if name in self._linears]
        if len({linear.head for linear in linears}) < 2:
            return
        for name in names:
            if name in self._linears:
                linear = self._linears[name]
                self._linears[name] = linear.unpacked(f"{linear.format} unlike its neighbours")
                self.tensors[name] = self.entry(name)

    def place(self, name: str) -> Place:
        """Where a tensor lies; of a linear, the first of its tensors."""
        linear = self._linears.get(name)
        if linear is None:
            return self._folder.place(name)
        return min(self._folder.place(tensor) for tensor in linear.tensors)

    def give_back(self) -> None:
        """Let the system have the memory of all that was read; views stay valid."""
        self._last = None
        self._folder.give_back()

    def close(self) -> None:
        """Let go of the mapped files."""
        self._last = None
        self._folder.close()
        self._linears, self.tensors = {}, {}


def _linears(folder: Folder, described: Mapping[str, Any]) -> dict[str, Linear]:
    method = described.get("quant_method")
    where: Path = folder.path / "config.json"
    if method == "bitsandbytes" or described.keys() & {"load_in_4bit", "load_in_8bit"}:
        raise UnsupportedModel(
            "quantization by bitsandbytes is not supported; use the plain model, or one quantized "
            f"by {', '.join(READERS)}",
            path=where,
        )
    if not isinstance(method, str) or method not in READERS:
        raise unsupported("quantization", method, READERS, where)
    try:
        found = READERS[method](folder, described)
    except CheckpointError as error:
        if error.path is not None:
            raise
        raise type(error)(str(error), path=where) from error
    if not found:
        raise CheckpointError(
            f"is quantized by {method} as it says, but has no such tensor", path=where
        )
    return found
