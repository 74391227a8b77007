"""Trees with the simulated runtime, built once a session, whoever of its processes comes first."""

import fcntl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sim_runtime_tree import (
    NATIVE,
    P800,
    R200,
    Tree,
    build_runtime,
    compile_native,
    tree_of,
)

MAJORS = (4, 5)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the maker of boards, and a folder for each major version, with the runtime and
    the kernels built for it."""
    base = tmp_path_factory.getbasetemp()
    session = base.parent if base.name.startswith("popen-") else base  # one of several processes
    folder = session / "kunlun_runtime"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            compile_native(folder / "make_board", [NATIVE / "runtime" / "make_board.cpp"])
            with ThreadPoolExecutor(len(MAJORS)) as pool:
                list(pool.map(lambda major: build_runtime(folder / str(major), major), MAJORS))
            (folder / "whole").touch()
    return folder


@pytest.fixture(scope="session")
def board_maker(compiled: Path) -> Path:
    return compiled / "make_board"


@pytest.fixture(scope="session")
def built_runtimes(compiled: Path) -> dict[int, Path]:
    return {major: compiled / str(major) for major in MAJORS}


@pytest.fixture
def p800(built_runtimes: dict[int, Path], board_maker: Path, tmp_path: Path) -> Tree:
    return tree_of(built_runtimes[5], board_maker, tmp_path / "p800", P800)


@pytest.fixture
def r200(built_runtimes: dict[int, Path], board_maker: Path, tmp_path: Path) -> Tree:
    return tree_of(built_runtimes[4], board_maker, tmp_path / "r200", R200)


@pytest.fixture(autouse=True)
def trees_have_boards_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chip's tests, which may have run in this process, lead every child to their board."""
    monkeypatch.delenv("XPUSIM_STATE", raising=False)
