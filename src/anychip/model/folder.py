"""A Hugging Face folder: config.json and one or more safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anychip.contract.weights import HostWeight
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.mapped import Place, TensorEntry, missing_tensor
from anychip.model.rows import rows_of
from anychip.model.safetensors_file import SafetensorsFile, parse_json
from anychip.model.unfinished import fetch_again

MAX_JSON_BYTES = 64 << 20
MAX_NAME = 255  # what a file system takes
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class Folder:
    """An open folder: `config` as parsed, and the tensors of all its files by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.config = read_json(path / "config.json")
        self._files: dict[str, SafetensorsFile] = {}
        self.tensors: dict[str, TensorEntry] = {}
        self._owner: dict[str, SafetensorsFile] = {}
        if (path / SINGLE).exists():
            self._add_all(self._open(SINGLE))
        elif (path / INDEX).exists():
            self._add_index(path / INDEX)
        else:
            raise _no_weights(path)

    @property
    def further_layers(self) -> bool:
        """Whether the config tells of layers that predict further tokens."""
        return bool(self.config.get("num_nextn_predict_layers"))

    def entry(self, name: str) -> TensorEntry:
        """What is known of a tensor; refuses a missing one and an unsupported format."""
        return self._file(name).entry(name)

    def read(self, name: str) -> HostWeight:
        """A tensor's bytes, as a view of the mapped file."""
        return self._file(name).read(name)

    def view(self, name: str) -> memoryview:
        """A tensor's bytes, whether or not they can be a weight."""
        return self._file(name).view(name)

    def rows(self, name: str, first: int, count: int) -> HostWeight:
        """Some rows of a tensor, all but its last dimension counted as rows."""
        return rows_of(self.read(name), first, count)

    def place(self, name: str) -> Place:
        """Where a tensor lies."""
        return (self._file(name).path.name, self.tensors[name].offset)

    def give_back(self) -> None:
        """Let the system have the memory of all that was read; views stay valid."""
        for file in self._files.values():
            file.give_back()

    def close(self) -> None:
        """Let go of the mapped files."""
        for file in self._files.values():
            file.close()
        self._files, self._owner, self.tensors = {}, {}, {}

    def _file(self, name: str) -> SafetensorsFile:
        if name not in self._owner:
            raise missing_tensor(name, self.path, self._unlisted(name))
        return self._owner[name]

    def _unlisted(self, name: str) -> str:
        """Where a tensor is that the index leaves out; empty where it is nowhere."""
        there = [file_name for file_name, file in self._files.items() if name in file.tensors]
        return f"{there[0]} has it, but {INDEX} does not list it" if there else ""

    def _open(self, file_name: str) -> SafetensorsFile:
        if file_name not in self._files:
            self._files[file_name] = SafetensorsFile(self.path / file_name)
        return self._files[file_name]

    def _add_all(self, file: SafetensorsFile) -> None:
        self.tensors.update(file.tensors)
        self._owner.update(dict.fromkeys(file.tensors, file))

    def _add_index(self, index: Path) -> None:
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError("has no 'weight_map' object", path=index)
        for name, file_name in weight_map.items():
            _check_shard(index, name, file_name)
            file = self._open(file_name)
            if name not in file.tensors:
                raise CheckpointError(
                    f"is listed in {INDEX} but not in this file: they are not of one model; "
                    f"{fetch_again(self.path)}",
                    path=file.path,
                    tensor=name,
                )
            self.tensors[name] = file.tensors[name]
            self._owner[name] = file
        self._check_doubles()

    def _check_doubles(self) -> None:
        """A tensor that two files have is the same in both, or it is not known which one counts."""
        for file in self._files.values():
            for name in file.tensors:
                owner = self._owner.get(name, file)
                if owner is not file and not file.same(owner, name):
                    raise CheckpointError(
                        f"is in {owner.path.name} too, with other values: the files are not of one "
                        f"model; {fetch_again(self.path)}",
                        path=file.path,
                        tensor=name,
                    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_JSON_BYTES + 1)
    except FileNotFoundError as error:
        raise CheckpointError("is missing", path=path) from error
    except OSError as error:
        raise CheckpointError(f"cannot be read: {error.strerror or error}", path=path) from error
    if len(text) > MAX_JSON_BYTES:
        raise CheckpointError(f"is larger than {MAX_JSON_BYTES} bytes", path=path)
    return parse_json(text, path)


def _check_shard(index: Path, name: str, file_name: Any) -> None:
    """A shard lies beside its index, under a plain name, and is there."""
    plain = isinstance(file_name, str) and file_name.endswith(".safetensors")
    plain = plain and len(file_name) <= MAX_NAME
    if not plain or any(c in file_name for c in "/\\\0") or file_name.startswith("."):
        raise CheckpointError(
            f"is said to be in {file_name!r:.70}; a shard must be a .safetensors file in the "
            f"folder, its name of at most {MAX_NAME} characters",
            path=index,
            tensor=name,
        )
    if not (index.parent / file_name).exists():
        raise CheckpointError(
            f"its file '{file_name}' is missing; {fetch_again(index.parent)}",
            path=index,
            tensor=name,
        )


def _no_weights(path: Path) -> CheckpointError:
    names = sorted(p.name for p in path.iterdir())
    pickles = [n for n in names if n.endswith(PICKLES)]
    if pickles:
        return UnsupportedModel(
            f"its weights are pickle files ({pickles[0]}), which can run code when they are read "
            "and are refused; save the model as safetensors",
            path=path,
        )
    others = [n for n in names if n.endswith((".safetensors", ".gguf"))]
    hint = f"; it has {', '.join(others[:3])}" if others else ""
    hint += ": pass the .gguf file itself" if any(n.endswith(".gguf") for n in others) else ""
    if not others:
        hint = f"; {fetch_again(path)}"
    return CheckpointError(f"has neither {SINGLE} nor {INDEX}{hint}", path=path)
