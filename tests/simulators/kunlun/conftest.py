"""Trees with the simulated runtime, built once a session."""

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


@pytest.fixture(scope="session")
def board_maker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kunlun_board") / "make_board"
    return compile_native(place, [NATIVE / "runtime" / "make_board.cpp"])


@pytest.fixture(scope="session")
def built_runtimes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A folder for each major version, with the runtime and the kernels built for it."""
    root = tmp_path_factory.mktemp("kunlun_runtime")
    with ThreadPoolExecutor(2) as pool:
        builds = {m: pool.submit(build_runtime, root / str(m), m) for m in (4, 5)}
        return {major: build.result() for major, build in builds.items()}


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
