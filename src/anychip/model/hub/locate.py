"""From a model's name on a hub to a folder or file: what is here already, else what it takes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from anychip.model.folder import INDEX, SINGLE, read_json
from anychip.model.hub.choice import choose, shards, small_files
from anychip.model.hub.errors import HubError, Unreachable
from anychip.model.hub.messages import Event, Note, Progress, Wanted
from anychip.model.hub.name import HubName
from anychip.model.hub.source import Listing, RemoteFile, Source, present

Tell = Callable[[Event], None]

_POLL_S = 0.3


def locate(source: Source, wanted: Wanted, tell: Tell) -> Path:
    """The model's folder, or its .gguf file. Small files come first, so that a cache that has the
    weights has all. Raises HubError."""
    name = HubName(wanted.id, wanted.revision, wanted.file)
    try:
        files = source.listing()
    except Unreachable as error:
        path = _from_cache(source, wanted, name, error)
        tell(Note(f"{error}; taken from the cache: {path}"))
        return path
    if wanted.tokenizer and wanted.file is None:
        return source.fetch(small_files(files))
    file = choose(_sizes(files), name, wanted.load_format)
    if file is not None:
        return _fetched(source, files, [file], tell) / file
    folder = source.fetch(small_files(files))
    return _fetched(source, files, _weights(folder, set(files), name), tell)


def _weights(folder: Path, files: set[str], name: HubName) -> list[str]:
    return [SINGLE] if SINGLE in files else shards(read_json(folder / INDEX), files, name)


def _sizes(files: Listing) -> dict[str, int]:
    return {name: file.size for name, file in files.items()}


def _fetched(source: Source, files: Listing, names: Sequence[str], tell: Tell) -> Path:
    folder = source.cached() or source.fetch([])
    wanted = {name: files[name] for name in names}
    total = sum(file.size for file in wanted.values())
    if all((folder / name).exists() for name in names):
        return source.fetch(names)  # nothing comes: nothing to show
    _require_space(folder, total - _here(source, folder, wanted))
    with _Watch(source, folder, wanted, tell):
        fetched = source.fetch(names)
    for name, file in wanted.items():
        _require_whole(fetched / name, file)
    tell(Progress(total, total))
    return fetched


def _here(source: Source, folder: Path, files: Listing) -> int:
    return sum(present(source, folder, name, file) for name, file in files.items())


def _require_space(folder: Path, needed: int) -> None:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise HubError(
            f"{folder} has {free / 2**20:,.0f} MiB free, fetching the model takes "
            f"{needed / 2**20:,.0f} MiB; free some space or name another folder with --download-dir"
        )


def _require_whole(path: Path, file: RemoteFile) -> None:
    size = path.stat().st_size
    if size != file.size:
        raise HubError(
            f"{path} has {size} bytes, the hub says {file.size}: delete the file and start again"
        )


class _Watch:
    """Tells the bytes that have come, from a thread: both clients write as they receive."""

    def __init__(self, source: Source, folder: Path, files: Listing, tell: Tell) -> None:
        self._source, self._folder, self._files, self._tell = source, folder, files, tell
        self._total = sum(file.size for file in files.values())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="anychip-fetch-progress")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._tell(Progress(_here(self._source, self._folder, self._files), self._total))
            if self._over.wait(_POLL_S):
                return


def _from_cache(source: Source, wanted: Wanted, name: HubName, why: Unreachable) -> Path:
    """What was fetched before, where it is whole. Raises HubError."""
    folder = source.cached()
    if folder is None:
        raise HubError(
            f"{name}: {why}, and the cache has no copy of it; start once with a network, or name "
            "a local folder or a .gguf file with --model-path"
        ) from why
    here = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    if wanted.tokenizer and wanted.file is None:
        return folder
    try:
        file = choose(here, name, wanted.load_format)
        if file is None:
            _weights(folder, set(here), name)
    except HubError as error:
        raise HubError(
            f"{name}: {why}, and its copy in {folder} is not whole: {_reason(error, name)}; start "
            "once with a network to fetch the rest"
        ) from error
    return folder if file is None else folder / file


def _reason(error: HubError, name: HubName) -> str:
    """What is wrong, without the name and the way out, which are others here."""
    return str(error).removeprefix(f"{name}: ").partition(";")[0]
