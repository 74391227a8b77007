"""Servers on two chips and a Prometheus that scrapes them, once for the module that asks.

The fake chip tells its memory alone; the simulated card beneath kunlun tells utilization,
temperature and power too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "simulators" / "kunlun"))
from observed_servers import FAULTY, Observed, await_ready, load, provoke_an_error, start
from prometheus_program import Prometheus, scraping
from sim_trees import HOME, shared_tree, with_accounts

import tiny_models
from served import ENVIRONMENT

# Operators are timed in every fourth step, or a short test might not see one.
FLAGS = ["--max-total-tokens", "2048", "--max-running-requests", "4", "--skip-server-warmup"]
FLAGS += ["--telemetry-interval", "0.5", "--operator-timing-interval", "4"]
FAULTS = [{"out_of_memory": [2]}]
"""Of the fake chip's engine: a step that ends with an error, which errors by layer need."""


@dataclass(frozen=True)
class Watched:
    """Servers under load, by chip, and the Prometheus that watches them."""

    prometheus: Prometheus
    fake: Observed
    kunlun: Observed


def _fake(model: Path, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    faults = folder / "faults.json"
    faults.write_text(json.dumps(FAULTS))
    told = ["--backend", "fake", "--chip-option", f"faults={faults}", "--model-path", str(model)]
    return ["-c", FAULTY, *told, *FLAGS], os.environ | ENVIRONMENT


def _kunlun(model: Path, folder: Path) -> tuple[list[str], Mapping[str, str]]:
    tree = with_accounts(shared_tree("--devices", "3"), folder / "board")
    places = {"KUNLUN_SDK_ROOT": str(tree.root / "sdk"), "XPU_VISIBLE_DEVICES": "0"}
    places["KUNLUN_RUNTIME_LIB"] = str(tree.root / "runtime" / "lib")
    told = ["--backend", "kunlun", "--build-dir", str(HOME / "shim"), "--dtype", "float32"]
    words = ["-m", "anychip", "serve", *told, "--model-path", str(model), *FLAGS]
    return words, tree.environment(**ENVIRONMENT | places)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    model = tiny_models.make_hf_folder(tmp_path_factory.mktemp("model"))
    with ExitStack() as ending:
        started = {}
        for chip, command_for in {"fake": _fake, "kunlun": _kunlun}.items():
            folder = tmp_path_factory.mktemp(chip)
            started[chip] = start(folder, *command_for(model, folder))
            ending.callback(started[chip][0].wait)
            ending.callback(started[chip][0].kill)
        servers = {chip: await_ready(chip, *of) for chip, of in started.items()}
        provoke_an_error(servers["fake"])
        folder = tmp_path_factory.mktemp("prometheus")
        scraped = scraping(folder, *(server.target for server in servers.values()))
        prometheus = ending.enter_context(scraped)
        ending.enter_context(load(*servers.values()))
        yield Watched(prometheus, **servers)
