"""The chip on the simulated SDK, with accounts of its own. What needs other trees or faults runs
in child processes: one process loads one runtime, and reads its faults once."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "simulators" / "kunlun"))
import kunlun_sim
from sim_trees import SimTree, shared_tree, with_accounts


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> SimTree:
    """Three P800; this process and its children account in one board, which no other test uses."""
    tree = with_accounts(shared_tree("--devices", "3"), tmp_path_factory.mktemp("kunlun_board"))
    os.environ["XPUSIM_STATE"] = str(tree.state)
    return tree


@pytest.fixture
def options(sdk: SimTree) -> dict[str, Any]:
    """Every option of the chip, for the three cards."""
    return kunlun_sim.options_for(sdk.root)


@pytest.fixture(scope="session")
def compiled(sdk: SimTree) -> str:
    """The chip's shim, compiled beforehand where a test gives the chip a time limit."""
    from anychip.chips.kunlun.build import KunlunBuild

    return KunlunBuild(kunlun_sim.options_for(sdk.root)).compile()


@pytest.fixture
def chip(options: dict[str, Any]) -> Iterator[Any]:
    """The first card, opened."""
    from anychip.chips.kunlun.registration import KunlunChip

    opened = KunlunChip.open(0, options)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def kernels(sdk: SimTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with kernels that take their time, for this tree's runtime."""
    return kunlun_sim.compiled_kernels(sdk, tmp_path_factory.mktemp("kernels") / "kernels.so")
