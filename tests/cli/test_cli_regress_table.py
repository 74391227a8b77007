"""The tables of `anychip regress`: figures are whole and the verdict is there at every width."""

from __future__ import annotations

import io
import shlex
from importlib import import_module

import pytest
from rich.console import Console

from anychip.bench.regress_baseline import Known
from anychip.bench.regress_judge import Outcome
from anychip.bench.regress_measure import Figures
from anychip.bench.regress_report import Report
from anychip.bench.regress_speed import Speeds, Spread
from anychip.cli.regress_progress import Lines
from anychip.cli.regress_table import draw

KEY = "llama-bfloat16/page+1/retracted"
FIGURES = (KEY, "0.0112", "0.0337", "12.80", "13.70", "1.51", "1.60", "12,799", "13,700")
WHOLE = ("bfloat16 ", "0.0149")


def speeds(ttft: float, tpot: float, throughput: float) -> Speeds:
    return Speeds(*(Spread(x, 0.9 * x, 1.1 * x) for x in (ttft, tpot, throughput)))


def outcome(*failed: str, deviation: float = 0.0112, note: str = "") -> Outcome:
    return Outcome(
        KEY,
        Figures("bfloat16", deviation, speeds=speeds(12.8, 1.51, 12799.0)),
        Known("bfloat16", 0.0149, speeds=speeds(13.7, 1.6, 13700.0)),
        0.0337,
        diverges=bool(failed),
        slower=False,
        failed=failed,
        notes=(note,) if note else (),
    )


def drawn(width: int, *outcomes: Outcome, verbose: bool) -> str:
    report = Report("fake", "today", {}, "0123", "Baseline", outcomes)
    file = io.StringIO()
    draw(Console(file=file, width=width), report, verbose=verbose)
    return file.getvalue()


@pytest.mark.parametrize("width", [40, 80, 220])
def test_figures_of_a_case_are_whole_and_its_verdict_is_there(width: int) -> None:
    text = drawn(width, outcome(), outcome("it is over", deviation=0.5), verbose=True)
    assert all(figure in text for figure in FIGURES)
    assert " ok" in text
    assert " worse" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= max(width, 80)


@pytest.mark.parametrize(("width", "there"), [(80, False), (220, True)])
def test_dtype_and_baseline_are_shown_where_there_is_room(width: int, there: bool) -> None:
    text = drawn(width, outcome(), verbose=True)
    assert [word in text for word in WHOLE] == [there, there]


@pytest.mark.parametrize("width", [40, 80, 220])
def test_model_is_one_row_with_the_case_nearest_to_its_limit(width: int) -> None:
    outcomes = [outcome(), outcome("over", deviation=float("nan")), outcome(note="no baseline")]
    text = drawn(width, *outcomes, verbose=False)
    (row,) = [line for line in text.splitlines() if "llama-bfloat16" in line]
    assert row.split()[:9] == [
        "llama-bfloat16",
        "3",
        "nan",
        "/",
        "0.0337",
        "-",
        "0.93",
        "1",
        "worse",
    ]


def test_piped_progress_tells_every_tenth_case_and_each_that_is_worse(capsys) -> None:
    seconds = iter((100.0, 105.0, 110.0))
    lines = Lines(clock=lambda: next(seconds))
    lines.begins("20 cases", 20)
    for number in range(20):
        lines.case_ended(outcome("it is over") if number == 3 else outcome())
    assert capsys.readouterr().err.splitlines() == [
        "20 cases",
        f"{KEY} is worse: it is over",
        "10 of 20 done, about 5 s left",
        "20 of 20 done",
    ]


@pytest.mark.parametrize("command", ["regress", "bisect", "replay_op"])
def test_help_ends_with_lines_to_copy(command: str) -> None:
    parser = import_module(f"anychip.cli.{command}").add_arguments()
    shown = parser.format_help().partition("\nexamples:\n")[2]
    lines = [line.strip() for line in shown.splitlines() if line]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line)
        assert words[:2] == ["anychip", command.replace("_", "-")]
        assert parser.parse_known_args(words[2:])[1] == []
