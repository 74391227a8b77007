"""The example chip serves a model: transformers' tokens, by composition and with its own norm."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import tiny_models
from answers.equality import Oracle, assert_same, config, greedy
from anychip.engine.build import build_engine
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine
from anychip.run.coverage import coverage

PROMPTS = [[5, 100, 200, 7, 9, 300, 21], [int(31 * n % 384) for n in range(3, 60)]]
SMALL = {"max_running_requests": 2, "chunked_prefill_size": 16, "max_total_tokens": 512}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def on_pebble(folder: Path, *, op: dict[str, str] | None = None, **options: str):
    asked = config(folder, backend="pebble", chip_option=options, **SMALL)
    return dataclasses.replace(asked, op=op or {})


@pytest.mark.parametrize("native", ["false", "true"])
def test_same_tokens_as_transformers(pebble, folder, native) -> None:
    oracle = Oracle(tiny_models.make_hf_model())
    with OfflineEngine(on_pebble(folder, native=native)) as offline:
        for prompt, found in zip(PROMPTS, offline.generate(PROMPTS, greedy(12)), strict=True):
            assert_same(offline, oracle, prompt, found.token_ids, oracle.answer(prompt, 12))
        served = {(op, kind) for op, _, kind in offline.info.operators}
    assert ("rms_norm", "native" if native == "true" else "composed") in served
    assert ("paged_attention", "composed") in served


def test_memory_is_given_back(pebble, folder) -> None:
    offline = OfflineEngine(on_pebble(folder))
    memory = offline.engine.runner._chip.memory
    assert memory.info().used > 0
    offline.close()
    assert memory.info().used == 0


def served(config) -> dict[str, set[str]]:
    """Operator -> implementations that serve it."""
    found: dict[str, set[str]] = {}
    for row in coverage(config).rows:
        found.setdefault(row.op, set()).add(row.implementation)
    return found


def test_table_shows_the_norm_chosen_declining_and_switched_off(pebble, folder) -> None:
    assert served(on_pebble(folder))["rms_norm"] == {"pebble.rms_norm"}
    wide = dataclasses.replace(on_pebble(folder), chunked_prefill_size=1025)
    assert served(wide)["rms_norm"] == {"pebble.rms_norm", "composed"}
    why = [w for row in coverage(wide).rows if row.op == "rms_norm" for w in row.why]
    assert why == ["pebble.rms_norm declines: 1,025 rows, the kernel takes 1,024"]
    off = on_pebble(folder, op={"rms_norm": "composed"})
    assert served(off)["rms_norm"] == {"composed"}


def test_missing_primitive_is_named_before_weights_are_read(pebble, folder) -> None:
    asked = on_pebble(folder, native="false", without="rsqrt")
    assert coverage(asked).missing == ["rsqrt"]
    lines: list[str] = []
    with pytest.raises(StartError, match="it needs rsqrt"):
        build_engine(asked, lines.append)
    assert not any("loading" in line for line in lines)
