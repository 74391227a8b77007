"""The report says who wins, what was missed, and what is not to be trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from race.report import read_results, report, table


def lines(shrink: int = 1) -> list[dict[str, object]]:
    race = {"kind": "race", "began": "today", "repeats": 1, "shrink": shrink}
    facts = {"processor": "P", "features": ["avx2"], "cores": 2, "memory_gib": 8.0}
    machine = {"kind": "machine", "repeat": 0, "system": "S", "python": "3.11", **facts}
    machine |= {"read_gb_s": {"1000": 20.0}, "product_gflops": {"bfloat16": 100.0}}
    found = [race, machine]
    for name, family, scale in (("anychip-bf16", "anychip", 1.0), ("vllm-bf16", "vllm", 4.0)):
        common = {"engine": name, "repeat": 0, "width": "bf16"}
        model = {"kind": "model", "engine": name, "step_bytes": 1000, "long_flops": 10**9}
        found.append(model | {"held_mib": 500.0})
        rates = {"decode_rate": 40 / scale, "first_mean_ms": 50 * scale, "wall_s": scale}
        for work in ("W1", "W2", "W3", "W4"):
            found.append(
                {"kind": "batch", "work": work, "output_rate": 80 / scale, **common, **rates}
            )
        for count, rate in ((1, 10.0), (2, 20.0 if family == "anychip" else 5.0)):
            found.append({"kind": "batch", "work": f"W5-{count}", "output_rate": rate, **common})
        server = {"kind": "server", "work": "server", "family": family, "start_s": 2.0, **common}
        sizes = {"peak_mib": 400.0 * scale, "shared_once_mib": 300.0, "processes": 1, "killed": 0}
        found.append(server | sizes | {"version": "1.0", "command": f"env {name} --port 1"})
    return found


def reported(tmp_path: Path, more: list[dict[str, object]] | None = None, shrink: int = 1) -> str:
    path = tmp_path / "results.jsonl"
    text = "\n".join(json.dumps(line) for line in [*lines(shrink), *(more or [])])
    path.write_text(text + "\n")
    return report(read_results(path))


def row(text: str, start: str, section: str = "") -> str:
    part = text.partition(section)[2]
    (found,) = [line for line in part.splitlines() if line.startswith(f"| {start}")][:1]
    return found


def test_report_tells_who_wins(tmp_path) -> None:
    text = reported(tmp_path)
    against = "## Each engine of ours"
    assert "**4.00** ours" in row(text, "W4 first token, ms", against)
    assert "0.25" not in row(text, "W4 first token, ms", against)


def test_report_tells_where_the_peer_wins(tmp_path) -> None:
    fast = {"kind": "batch", "engine": "vllm-bf16", "repeat": 0, "width": "bf16", "work": "W3"}
    text = reported(tmp_path, [fast | {"wall_s": 0.5}])
    assert "0.50 peer" in row(text, "W3 wall, s", "## Each engine of ours")
    assert "MISSED" in row(text, "W3 wall, s | bf16", "## Targets")


def test_report_judges_targets_and_budgets(tmp_path) -> None:
    text = reported(tmp_path)
    assert "| 2.5 x | 4.00 x | reached |" in row(text, "W2 output, tok/s | bf16", "## Targets")
    assert "not measured" in row(text, "W1 decode, tok/s | bf16", "## Targets")
    assert "MISSED" in row(text, "anychip-bf16 | start to first token", "## Start and memory")
    assert "reached" in row(text, "anychip-bf16 | peak memory", "## Start and memory")
    assert "vllm" not in text.partition("## Start and memory")[2].partition("##")[0]


def test_report_says_whether_throughput_rises(tmp_path) -> None:
    text = reported(tmp_path)
    assert row(text, "anychip-bf16", "## W5").endswith("| yes |")
    assert row(text, "vllm-bf16", "## W5").endswith("| NO |")


def test_report_gives_shares_of_the_limits(tmp_path) -> None:
    text = reported(tmp_path)
    assert "| W4 prefill | 20 GFLOP/s | 100 GFLOP/s | 20% |" in text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"kind": "skipped", "engine": "llama.cpp-q8_0", "why": "no program"}, "no program"),
        ({"kind": "error", "engine": "vllm-bf16", "repeat": 1, "why": "it ended"}, "repeat 1: it"),
        ({"kind": "busy", "engine": "vllm-bf16", "repeat": 0, "share": 0.4}, "up to 40% of the"),
    ],
)
def test_report_hides_nothing_that_went_wrong(tmp_path, line, told) -> None:
    assert told not in reported(tmp_path)
    assert told in reported(tmp_path, [line])


def test_report_tells_of_answers_that_nobody_counted(tmp_path) -> None:
    line = {"kind": "batch", "engine": "vllm-bf16", "repeat": 0, "work": "W1", "counted": False}
    assert "vllm-bf16 does not tell how many tokens" in reported(tmp_path, [line])


def test_a_shrunk_race_is_no_race(tmp_path) -> None:
    assert "not the race" in reported(tmp_path, shrink=16)
    assert "not the race" not in reported(tmp_path)


def test_a_race_of_ours_alone_has_no_ratios(tmp_path) -> None:
    path = tmp_path / "results.jsonl"
    kept = [line for line in lines() if line.get("engine") != "vllm-bf16"]
    path.write_text("\n".join(map(json.dumps, kept)))
    text = report(read_results(path))
    assert "Each engine of ours" not in text and "## Figures" in text


def test_table_without_rows_is_nothing() -> None:
    assert table(["a"], []) == ""
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
