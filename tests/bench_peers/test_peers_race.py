"""A whole race of servers that make their answers up: its lines, their order, its report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from race.engines import Engine, Family, Skipped
from race.measure import Limits, Race, version_of
from race.report import read_results, report

import tiny_models

SCRIPT = Path(__file__).with_name("scripted_completions.py")


def engine(name: str, family: str, model: Path, fault: str = "") -> Engine:
    kind = Family(
        name=family,
        flag="--none",
        command=f"{{program}} {SCRIPT} {{port}} '{fault}'",
        serves={"q4_1": "q4_1"},
        version="{program} --version",
        install="pip install nothing",
        environment={"THREADS": "{threads}"},
    )
    return Engine(name, kind, "q4_1", Path(sys.executable), model)


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    out = tmp_path_factory.mktemp("raced")
    model = tiny_models.make_gguf(out, "q4_1")
    engines = [
        engine("anychip-q4_1", "anychip", model),
        engine("llama.cpp-q4_1", "llama.cpp", model),
        engine("vllm-bf16", "vllm", model, "dies"),
        engine("short-q4_1", "short", model, "stops"),
    ]
    race = Race(out, ["W1", "W3"], repeats=2, shrink=32, limits=Limits(60, 60))
    race.run(engines, [Skipped("gone-bf16", "it is not installed")])
    return out, read_results(out / "results.jsonl")


def test_engines_run_in_turn(raced) -> None:
    _, results = raced
    served = [(line["engine"], line["repeat"]) for line in results.kind("server")]
    names = ("anychip-q4_1", "llama.cpp-q4_1")
    assert [each for each in served if each[0] in names] == [(n, r) for r in (0, 1) for n in names]
    done = [(line["engine"], line["work"], line["repeat"]) for line in results.kind("batch")]
    done = [each for each in done if each[0] in names]
    assert done == [(n, w, r) for r in (0, 1) for n in names for w in ("W1", "W3")]


def test_every_line_of_a_server_tells_how_it_was_started(raced) -> None:
    _, results = raced
    for line in results.kind("server"):
        assert line["command"].startswith("env -u PYTHONDONTWRITEBYTECODE THREADS=")
        assert line["version"].startswith("Python 3")
        assert line["start_s"] > 0 and line["peak_mib"] > 1 and line["killed"] == 0


def test_what_went_wrong_is_kept_and_the_race_goes_on(raced) -> None:
    _, results = raced
    wrong = {(line["engine"], line["repeat"]): line["why"] for line in results.kind("error")}
    assert "no such model" in wrong["vllm-bf16", 0] and "no such model" in wrong["vllm-bf16", 1]
    assert "asked for" in wrong["short-q4_1", 1]
    assert {line["engine"] for line in results.kind("skipped")} == {"gone-bf16"}


def test_limits_are_measured_for_each_size_and_repeat(raced) -> None:
    _, results = raced
    sizes = {str(line["step_bytes"]) for line in results.kind("model")}
    assert [line["repeat"] for line in results.kind("machine")] == [0, 1]
    for line in results.kind("machine"):
        assert set(line["read_gb_s"]) == sizes


def test_the_report_of_it_is_whole(raced) -> None:
    _, results = raced
    text = report(results)
    assert "not the race" in text and "gone-bf16: it is not installed" in text
    assert "| anychip-q4_1 against | llama.cpp-q4_1 |" in text
    assert "| W1 decode, tok/s | 4-bit | anychip-q4_1 | llama.cpp-q4_1 | 1.3 x |" in text


def test_each_server_has_a_log(raced) -> None:
    out, _ = raced
    assert "no such model" in (out / "vllm-bf16.log").read_text()


def test_a_program_without_a_version_is_told(tmp_path) -> None:
    kind = Family("none", "--none", "", {}, "false", "")
    found = Engine("none-q4_1", kind, "q4_1", Path("false"), tmp_path)
    assert version_of(found) == "no version (it ended with 1)"
