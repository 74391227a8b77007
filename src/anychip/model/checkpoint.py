"""A model on disk, a Hugging Face folder or a GGUF file: its config and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from anychip.contract.formats import BLOCK_FORMATS
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.config import ModelConfig
from anychip.model.errors import CheckpointError, UnsupportedModel, not_found
from anychip.model.folder import PICKLES, Folder
from anychip.model.formats import dequantize, plain_weight
from anychip.model.gguf import MAGIC, GgufFile
from anychip.model.mapped import TensorEntry
from anychip.model.names import NAMINGS, Naming, WeightSource, weight_sources

ROPE_FACTORS = "rope_freqs.weight"


class TensorStore(Protocol):
    """Named tensors: a folder's or a file's."""

    tensors: dict[str, TensorEntry]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the file says beside its tensors; empty for a folder, whose other files do."""

    def entry(self, name: str) -> TensorEntry:
        """What is known of a tensor; CheckpointError where it is missing or of no use."""

    def read(self, name: str) -> HostWeight:
        """A view of its bytes."""

    def give_back(self) -> None:
        """Let the system have the memory of all that was read; views stay valid."""

    def close(self) -> None:
        """Let go of the files."""


class Checkpoint:
    """An open checkpoint whose tensors are all there, in shapes that its config explains."""

    def __init__(self, path: Path, store: TensorStore, config: ModelConfig, naming: Naming) -> None:
        self.path = path
        self._store = store
        self.sources: tuple[WeightSource, ...] = weight_sources(config, naming)
        self._head_dim = config.head_dim
        for source in self.sources:
            self._check(source)
        self.config: ModelConfig = replace(config, dtype=self._dtype())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """A GGUF file's key/value pairs; a folder has none."""
        return self._store.metadata

    @property
    def total_bytes(self) -> int:
        """Bytes of all the tensors that the network needs, as they lie in the files."""
        entry = self._store.entry
        return sum(entry(part).nbytes for source in self.sources for part in source.parts)

    @property
    def unused(self) -> tuple[str, ...]:
        """Tensors of the files that the network does not take, to be told at start-up."""
        used = {part for source in self.sources for part in source.parts} | {ROPE_FACTORS}
        return tuple(name for name in self._store.tensors if name not in used)

    def describe(self, part: str) -> tuple[str, Shape]:
        """Format and shape of a source tensor."""
        entry = self._store.entry(part)
        return entry.format, entry.shape

    def read(self, source: WeightSource) -> tuple[HostWeight, ...]:
        """The parts in order, rows as the network wants them; views of the file where possible.

        A vector comes as one float32 weight of shape (N,), its parts joined.
        """
        pairs = zip(source.parts, source.permute, strict=True)
        weights = tuple(
            split_halves(self._store.read(part), self._head_dim)
            if permute == "ggml-rope"
            else self._store.read(part)
            for part, permute in pairs
        )
        if source.uses is not None:
            return weights
        return (plain_weight(np.concatenate([dequantize(weight) for weight in weights])),)

    def give_back(self) -> None:
        """Let the system have the pages of the files that `read` brought in; its views stay valid.

        A file that is mapped counts as this process's memory as far as it was read.
        """
        self._store.give_back()

    def close(self) -> None:
        """Let go of the files; views that were handed out stay valid."""
        self._store.close()

    def _check(self, source: WeightSource) -> None:
        for part, shape in zip(source.parts, source.shapes, strict=True):
            found = self._store.entry(part).shape
            if found != shape:
                raise CheckpointError(
                    f"has shape {found}, the model's config needs {shape}",
                    path=self.path,
                    tensor=part,
                )

    def _dtype(self) -> str:
        matrices = [s for s in self.sources if s.uses is not None]
        formats = [self._store.entry(part).format for s in matrices for part in s.parts]
        if any(format in BLOCK_FORMATS for format in formats):
            return "quantized"
        return max(sorted(set(formats)), key=formats.count)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open a folder or a .gguf file and check that every tensor is there.

    Raises CheckpointError (what is missing or broken) or UnsupportedModel (what is not served).
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise not_found(path)
    if _is_gguf(path):
        return _open_gguf(path)
    raise _wrong_file(path)


def split_halves(weight: HostWeight, head_dim: int) -> HostWeight:
    """Undo the row order of GGUF's llama: in each head, rows (0, 1, 2, ..) -> (0, 2, .., 1, 3, ..).

    Works on blocks as well: they lie along K, so a row is moved whole.
    """
    rows = weight.shape[0]
    raw = np.frombuffer(weight.data, np.uint8).reshape(rows // head_dim, head_dim // 2, 2, -1)
    halves = np.ascontiguousarray(raw.swapaxes(1, 2)).reshape(-1)
    return HostWeight(weight.format, weight.shape, halves.data.toreadonly())


def _open_folder(path: Path) -> Checkpoint:
    if not any(path.iterdir()):
        raise CheckpointError("the folder is empty", path=path)
    if not (path / "config.json").exists() and (ggufs := sorted(path.glob("*.gguf"))):
        raise CheckpointError(
            f"the folder has no config.json; pass the file {ggufs[0]} itself", path=path
        )
    folder = Folder(path)
    config = _located(ModelConfig.from_hf, folder.config, path / "config.json")
    return Checkpoint(path, folder, config, NAMINGS[config.architecture, "hf"])


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    config = _located(ModelConfig.from_gguf, file.metadata, path)
    naming = NAMINGS[config.architecture, "gguf"]
    first = naming.layer.format(i=0)
    config = replace(
        config,
        tie_embeddings=f"{naming.lm_head}.weight" not in file.tensors,
        attention_bias=f"{first}{naming.query}.bias" in file.tensors,
        mlp_bias=f"{first}{naming.gate}.bias" in file.tensors,
    )
    if ROPE_FACTORS in file.tensors:
        config = _with_rope_factors(config, file)
    return Checkpoint(path, file, config, naming)


def _with_rope_factors(config: ModelConfig, file: GgufFile) -> ModelConfig:
    factors = dequantize(file.read(ROPE_FACTORS)).reshape(-1)
    if len(factors) > config.head_dim:
        raise CheckpointError(
            f"has {len(factors)} numbers, {config.head_dim // 2} are needed",
            path=file.path,
            tensor=ROPE_FACTORS,
        )
    values = tuple(float(factor) for factor in factors)
    try:
        return replace(config, rope=replace(config.rope, factors=values))
    except CheckpointError as error:
        raise CheckpointError(str(error), path=file.path, tensor=ROPE_FACTORS) from error


def _located(
    parse: Callable[[Mapping[str, object]], ModelConfig], settings: Mapping[str, object], path: Path
) -> ModelConfig:
    """Parse, and put the file's name on what goes wrong."""
    try:
        return parse(settings)
    except CheckpointError as error:
        raise type(error)(str(error), path=path) from error


def _is_gguf(path: Path) -> bool:
    if path.suffix == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror or error}", path=path) from error


def _wrong_file(path: Path) -> CheckpointError:
    if path.suffix == ".safetensors":
        return CheckpointError(f"pass the model's folder, {path.parent}, not the file", path=path)
    if path.suffix in PICKLES:
        return UnsupportedModel(
            "pickle files can run code when they are read and are refused; "
            "save the model as safetensors",
            path=path,
        )
    return CheckpointError("is neither a model folder nor a GGUF file", path=path)
