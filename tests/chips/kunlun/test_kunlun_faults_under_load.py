"""The simulated card fails under load: a right answer or a clear error, and the engine is back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from sim_trees import HOME, SimTree

import tiny_models
from engine_load import config_for, go_through

FAULTS = ("kexception@700", "hang@300", "lost@500")
ERRORS = ("SIGKILL", "kernel failure", "--watchdog-timeout", "device lost", "out of memory")


@pytest.mark.usefixtures("compiled")
def test_every_answer_is_right_or_a_clear_error(sdk: SimTree, tmp_path: Path) -> None:
    model, faults = tiny_models.make_hf_folder(tmp_path / "tiny"), tmp_path / "faults.json"
    starts = [{"environment": {"XPUSIM_FAULTS": fault}, "out_of_memory": [5]} for fault in FAULTS]
    faults.write_text(json.dumps([{}, *starts]))
    options = {
        "sdk_root": str(sdk.root / "sdk"),
        "runtime_lib": str(sdk.root / "runtime" / "lib"),
        "build_dir": str(HOME / "shim"),
    }
    config = config_for(model, faults, "kunlun", options)
    load = asyncio.run(go_through(config, len(FAULTS) + 1, ERRORS, seed=1))
    assert json.loads(faults.read_text()) == []
    assert load.seen["error"] > len(FAULTS) and load.seen["answered"] > 40
