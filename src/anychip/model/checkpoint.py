"""A model on disk, a Hugging Face folder or a GGUF file: its config and its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from anychip.contract.formats import PLAIN_FORMATS, head_bytes
from anychip.contract.tensor import Shape
from anychip.contract.weights import HostWeight
from anychip.model.config import ModelConfig
from anychip.model.errors import CheckpointError, UnsupportedModel, not_found
from anychip.model.families import FAMILIES, config_from_gguf, config_from_hf
from anychip.model.fields import Fields
from anychip.model.folder import PICKLES, Folder
from anychip.model.formats import Floats, dequantize, plain_weight
from anychip.model.gguf import MAGIC, GgufFile
from anychip.model.mapped import Place, TensorEntry, folder_of
from anychip.model.naming import Naming
from anychip.model.quantized.store import QuantizedFolder, quantization
from anychip.model.sources import Part, WeightSource
from anychip.model.transposed import transposed_rows

FACTORS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_FACTORS = {FACTORS, LONG, SHORT}
"""Tensors of GGUF that belong to the rotation: llama3's divisors, and longrope's."""


class TensorStore(Protocol):
    """Named tensors: a folder's or a file's."""

    tensors: dict[str, TensorEntry]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the file says beside its tensors; empty for a folder, whose other files do."""

    @property
    def further_layers(self) -> bool:
        """Whether layers that predict further tokens lie behind the last one."""

    def entry(self, name: str) -> TensorEntry:
        """What is known of a tensor; CheckpointError where it is missing or of no use."""

    def read(self, name: str) -> HostWeight:
        """A view of its bytes."""

    def rows(self, name: str, first: int, count: int) -> HostWeight:
        """Some of its rows, all but its last dimension counted as rows: [count, K]."""

    def place(self, name: str) -> Place:
        """Where it lies."""

    def give_back(self) -> None:
        """Let the system have the memory of all that was read; views stay valid."""

    def close(self) -> None:
        """Let go of the files."""


class Checkpoint:
    """An open checkpoint whose tensors are all there, in shapes that its config explains."""

    def __init__(
        self,
        path: Path,
        store: TensorStore,
        config: ModelConfig,
        naming: Naming,
        quantized_by: str | None = None,
    ) -> None:
        """quantized_by: how a folder says that it was quantized; "gguf" for a GGUF file."""
        self.path, self.quantized_by = path, quantized_by
        self._store = store
        sources = FAMILIES[config.architecture].sources
        self.sources: tuple[WeightSource, ...] = sources(config, naming)
        self._head_dim = config.head_dim
        for source in self.sources:
            self._check(source)
        self._check_layers(config, naming)
        self.config: ModelConfig = replace(config, dtype=self._dtype())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """A GGUF file's key/value pairs; a folder has none."""
        return self._store.metadata

    @property
    def total_bytes(self) -> int:
        """Bytes of all that the network needs, as it lies in the files."""
        return sum(self.nbytes(part) for source in self.sources for part in source.parts)

    @property
    def unused(self) -> tuple[str, ...]:
        """Tensors of the files that the network does not take, to be told at start-up."""
        used = {part.tensor for source in self.sources for part in source.parts} | ROPE_FACTORS
        return tuple(name for name in self._store.tensors if name not in used)

    def describe(self, part: Part) -> tuple[str, Shape]:
        """Format of a part, and the shape of what is taken of it.

        A format that is none of the contract's says what the file has; it is read as float32.
        """
        return self._store.entry(part.tensor).format, part.taken

    def nbytes(self, part: Part) -> int:
        """Bytes of what is taken of a part, as it lies in the files."""
        entry = self._store.entry(part.tensor)
        if part.rows is None:
            return entry.nbytes
        return entry.nbytes * part.rows[1] * part.taken[-1] // math.prod(entry.shape)

    def read(self, source: WeightSource) -> tuple[HostWeight, ...]:
        """The parts in order, rows as the network wants them; views of the file where possible.

        A constant comes as one float32 weight of its shape, its parts joined.
        """
        if source.uses is not None:
            return tuple(self.parts(source))
        values = np.concatenate([self._elements(part) for part in source.parts])
        return (plain_weight(values.reshape(source.shape)),)

    def parts(self, source: WeightSource) -> Iterator[HostWeight]:
        """The parts of a matrix, one read after the other."""
        return (self._arranged(part, self._taken(part)) for part in source.parts)

    def places(self, source: WeightSource) -> list[Place]:
        """Where its parts lie."""
        return [self._store.place(part.tensor) for part in source.parts]

    def _taken(self, part: Part, *, constant: bool = False) -> HostWeight:
        """In the order of the file."""
        if part.transposed:
            weight = self._store.read(part.tensor)
            return transposed_rows(weight, part.rows, constant=constant)
        if part.rows is not None:
            return self._store.rows(part.tensor, *part.rows)
        weight = self._store.read(part.tensor)
        return HostWeight(weight.format, part.shape, weight.data)

    def _arranged(self, part: Part, weight: HostWeight) -> HostWeight:
        if part.permute != "none":
            heads = part.permute == "ggml-rope"
            weight = split_halves(weight, self._head_dim if heads else weight.shape[0])
        if part.logarithm:
            weight = plain_weight(-np.exp(dequantize(weight)))
        if part.plus:
            weight = plain_weight(dequantize(weight) + np.float32(part.plus))
        return weight

    def _elements(self, part: Part) -> Floats:
        """Of a constant, in one row."""
        elements = plain_weight(dequantize(self._taken(part, constant=True)).reshape(-1))
        return dequantize(self._arranged(part, elements))

    def give_back(self) -> None:
        """Let the system have the pages of the files that `read` brought in; its views stay valid.

        A file that is mapped counts as this process's memory as far as it was read.
        """
        self._store.give_back()

    def close(self) -> None:
        """Let go of the files; views that were handed out stay valid."""
        self._store.close()

    def _check(self, source: WeightSource) -> None:
        for part in source.parts:
            found = self._store.entry(part.tensor).shape
            if _without_ones(found) != _without_ones(part.shape):
                name = self._store.place(part.tensor)[0]
                raise CheckpointError(
                    f"has shape {found}, the model's config needs {part.shape}: config and weights "
                    "are not of one model; fetch both from one place",
                    path=folder_of(self.path) / name,
                    tensor=part.tensor,
                )

    def _check_layers(self, config: ModelConfig, naming: Naming) -> None:
        """The files have no layer more than the config says: the model would answer without it.

        Layers that predict further tokens lie behind the last one; who has them counts them.
        """
        prefix = naming.layer.format(i=config.layers)
        more = next((name for name in self._store.tensors if name.startswith(prefix)), None)
        if more is not None and not self._store.further_layers:
            raise CheckpointError(
                f"is of a layer behind the {config.layers} that the config says: config and "
                "weights are not of one model; fetch both from one place",
                path=folder_of(self.path) / self._store.place(more)[0],
                tensor=more,
            )

    def _dtype(self) -> str:
        matrices = [s for s in self.sources if s.uses is not None]
        formats = [self._store.entry(part.tensor).format for s in matrices for part in s.parts]
        if any(format not in PLAIN_FORMATS for format in formats):
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
    rows, head = weight.shape[0], head_bytes(weight.format, weight.shape[-1])
    raw = np.frombuffer(weight.data, np.uint8)
    heads = raw[head:].reshape(rows // head_dim, head_dim // 2, 2, -1)
    halves = np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(-1)
    if head:
        halves = np.concatenate([raw[:head], halves])
    return HostWeight(weight.format, weight.shape, halves.data.toreadonly())


def _without_ones(shape: Shape) -> Shape:
    """GGUF files may lack such a dimension, or have one more; a row's elements are never one."""
    return (*(size for size in shape[:-1] if size != 1), *shape[-1:])


def _open_folder(path: Path) -> Checkpoint:
    if not any(path.iterdir()):
        raise CheckpointError("the folder is empty", path=path)
    if not (path / "config.json").exists() and (ggufs := sorted(path.glob("*.gguf"))):
        raise CheckpointError(
            f"the folder has no config.json; pass the file {ggufs[0]} itself", path=path
        )
    folder = Folder(path)
    config = _located(config_from_hf, folder.config, path / "config.json")
    family = FAMILIES[config.architecture]
    described = quantization(folder)
    if described is None:
        return Checkpoint(path, folder, config, family.hf_names)
    store = QuantizedFolder(folder, described)
    for source in family.sources(config, family.hf_names):
        store.stack(tuple(part.tensor for part in source.parts))
    return Checkpoint(path, store, config, family.hf_names, str(described["quant_method"]))


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    config = _located(config_from_gguf, file.metadata, path)
    naming = FAMILIES[config.architecture].gguf_names
    assert naming is not None
    naming = naming.found_in(file.tensors)
    config = replace(config, **_told_by_tensors(file.tensors, naming))
    for names in ((FACTORS,), (SHORT, LONG)):
        if file.tensors.keys() >= set(names):
            config = _with_rope_factors(config, file, names)
    return Checkpoint(path, file, config, naming, "gguf")


def _told_by_tensors(tensors: Mapping[str, TensorEntry], naming: Naming) -> dict[str, Any]:
    """What GGUF says by having a tensor or not."""
    first = naming.layer.format(i=0)

    def has_bias(*roles: str) -> bool:
        names = (naming.roles[role] for role in roles if role in naming.roles)
        return any(f"{first}{name}.bias" in tensors for name in names)

    return {
        "tie_embeddings": f"{naming.outside['lm_head']}.weight" not in tensors,
        "attention_bias": has_bias("query", "query_key_value"),
        "output_bias": has_bias("attention_output"),
        "mlp_bias": has_bias("gate", "gate_up"),
    }


def _with_rope_factors(config: ModelConfig, file: GgufFile, names: tuple[str, ...]) -> ModelConfig:
    """One list replaces the scaling; two are longrope's, for short and for long contexts."""
    lists = [_factors(config, file, name) for name in names]
    changes: dict[str, Any] = {"factors": lists[0]}
    if len(lists) == 2:
        read = Fields(file.metadata, "GGUF metadata", f"{file.metadata['general.architecture']}.")
        original = read.integer("rope.scaling.original_context_length", config.context_length)
        changes = {
            "kind": "longrope",
            "short": lists[0],
            "long": lists[1],
            "original_context": original,
            "magnitude": read.number("rope.scaling.attn_factor", 1.0),
        }
    try:
        return replace(config, ropes=(replace(config.rope, **changes), *config.ropes[1:]))
    except CheckpointError as error:
        raise CheckpointError(str(error), path=file.path, tensor=names[0]) from error


def _factors(config: ModelConfig, file: GgufFile, name: str) -> tuple[float, ...]:
    values = dequantize(file.read(name)).reshape(-1)
    if len(values) > config.head_dim:
        raise CheckpointError(
            f"has {len(values)} numbers, {config.rope.rotary_dim // 2} are needed",
            path=file.path,
            tensor=name,
        )
    return tuple(float(value) for value in values)


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
