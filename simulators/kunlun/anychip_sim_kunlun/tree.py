"""Putting a tree in its place: whole or not at all, and only where something would change.

A tree is made beside its place and exchanged with what is there in one step; a process that runs
on the old tree keeps the files that it has open. `build.json` in a tree says what it was made
from: a build that would make the same again does nothing.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anychip_sim_kunlun.compiler import FLAGS, Compiler, find_compiler
from anychip_sim_kunlun.libraries import NATIVE
from anychip_sim_kunlun.making import RECORD, Making
from anychip_sim_kunlun.objects import digest_of
from anychip_sim_kunlun.order import Say, TreeOrder
from anychip_sim_kunlun.refusal import BuildRefused

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Numbers of Linux for renameat2."""


def build_tree(order: TreeOrder, say: Say) -> bool:
    """Make the tree unless it is there already; whether it was made. Raises BuildRefused."""
    compiler = find_compiler()
    key = tree_key(order, compiler)
    try:
        with _locked(order):
            _refuse_foreign(order.prefix)
            if is_current(order.prefix, key):
                return False
            _replace(order, compiler, key, say)
    except OSError as error:
        raise BuildRefused(f"{order.prefix} cannot be made: {error}") from error
    return True


def tree_key(order: TreeOrder, compiler: Compiler) -> str:
    """Changes with anything that could change the tree."""
    digest = hashlib.sha256()
    sources = sorted(path for path in NATIVE.rglob("*") if path.is_file())
    for file in (*sources, *sorted(Path(__file__).parent.glob("*.py"))):
        digest.update(f"{file.name}\0{digest_of(file)}\0".encode())
    digest.update(json.dumps([order.facts(), FLAGS, compiler.identity]).encode())
    return digest.hexdigest()


def read_record(prefix: Path) -> Mapping[str, Any]:
    """What the tree at `prefix` was made from; empty where there is none of ours."""
    try:
        record: dict[str, Any] = json.loads((prefix / RECORD).read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return record


def is_current(prefix: Path, key: str) -> bool:
    """Whether the tree is the one of this key, and whole."""
    record = read_record(prefix)
    files: list[str] = record.get("files", [])
    return record.get("key") == key and all(os.path.lexists(prefix / name) for name in files)


@contextmanager
def _locked(order: TreeOrder) -> Iterator[None]:
    """One builder at a time for one prefix; a second one waits, and then finds it done."""
    folder = order.cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(order.prefix)).hexdigest()[:24]
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _refuse_foreign(prefix: Path) -> None:
    """What somebody else put there stays. Raises BuildRefused."""
    if not os.path.lexists(prefix) or read_record(prefix):
        return
    if not prefix.is_dir() or prefix.is_symlink() or any(prefix.iterdir()):
        raise BuildRefused(f"{prefix} is there and is no tree of this simulator; name another")


def _replace(order: TreeOrder, compiler: Compiler, key: str, say: Say) -> None:
    prefix = order.prefix
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for left in prefix.parent.glob(f".{prefix.name}.making-*"):  # by a build that was killed
        shutil.rmtree(left)
    staging = prefix.with_name(f".{prefix.name}.making-{os.getpid()}")
    staging.mkdir()
    try:
        Making(order, compiler, staging, say).make(key)
        _put_in_place(staging, prefix)
    finally:
        if staging.exists():
            shutil.rmtree(staging)


def _put_in_place(made: Path, prefix: Path) -> None:
    """At no moment is there half a tree, nor none where one was. The old one is then at `made`."""
    if not read_record(prefix):
        made.rename(prefix)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    paths = (AT_FDCWD, os.fsencode(made), AT_FDCWD, os.fsencode(prefix))
    if libc.renameat2(*paths, RENAME_EXCHANGE) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise BuildRefused(f"{prefix} cannot be exchanged ({reason}); remove it, and build again")
