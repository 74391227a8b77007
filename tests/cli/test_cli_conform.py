"""`anychip conform` as a user meets it: a chip that is sound, one that crashes, wrong flags."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anychip.__main__ import main

CHIP = """
import os, time
from anychip.chips.fake.registration import FakeChip
from anychip.contract.registration import register_chip

@register_chip("sandstone", contract=(0, 1))
class Sandstone(FakeChip):
    vendor = "quarry"

    @classmethod
    def map_error(cls, code):
        {fault}
"""


def install(site: Path, patch: pytest.MonkeyPatch, fault: str) -> None:
    """`--backend sandstone`: a chip that does this when it is asked what a code means."""
    info = site / "sandstone-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sandstone\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[anychip.chips]\nsandstone = sandstone:Sandstone\n")
    (site / "sandstone.py").write_text(CHIP.format(fault=fault))
    patch.syspath_prepend(str(site))


def conform(*words: str) -> int:
    return main(["conform", *words])


def test_a_sound_level_exits_with_0_and_tells_its_counts(capsys):
    assert conform("--backend", "fake", "--level", "build") == 0
    said = capsys.readouterr()
    assert "registration" in said.out and "memory" not in said.out
    assert "UNSUPPORTED   B3: build.compile is an empty slot" in said.out
    assert "build: 3 to run" in said.err


def test_a_chip_that_crashes_exits_with_1_and_has_all_other_results(tmp_path, monkeypatch, capsys):
    install(tmp_path / "site", monkeypatch, "os.abort()")
    file = tmp_path / "r.json"
    line = ["--backend", "sandstone", "--level", "registration", "--output", str(file)]
    assert conform(*line, "--json") == 1
    printed = capsys.readouterr().out
    assert printed == file.read_text()
    report = json.loads(printed)
    status = {row["check"]: row["status"] for row in report["results"]}
    assert status["D3"] == "FAIL" and {status[key] for key in ("P1", "P2", "D1")} == {"PASS"}
    text = next(row["text"] for row in report["results"] if row["check"] == "D3")
    assert text == "the process died of SIGABRT during this check"
    assert report["fingerprint"]["chip"]["distribution"] == "sandstone"


def test_a_check_that_takes_too_long_exits_with_1(tmp_path, monkeypatch, capsys):
    install(tmp_path / "site", monkeypatch, "time.sleep(600)")
    assert conform("--backend", "sandstone", "--only", "D3", "--check-timeout", "3") == 1
    assert "D3: no result within 3 s during this check" in capsys.readouterr().out


def test_markdown_is_written_and_two_reports_are_compared(tmp_path, monkeypatch, capsys):
    before, after, page = (tmp_path / name for name in ("b.json", "a.json", "r.md"))
    line = ["--backend", "fake", "--only", "P*"]
    assert conform(*line, "--output", str(page)) == 0
    assert "| PASS | P1 |" in page.read_text()
    assert conform(*line, "--output", str(before)) == 0
    after.write_text(before.read_text().replace('"status": "PASS"', '"status": "FAIL"', 1))
    capsys.readouterr()
    assert conform("diff", str(before), str(after)) == 1
    assert "worse P1: PASS -> FAIL" in capsys.readouterr().out
    assert conform("diff", str(after), str(before), "--json") == 0
    assert json.loads(capsys.readouterr().out)["status"][0]["subject"] == "P1"
    assert conform("diff", str(before), str(page)) == 2
    assert "is no report of `anychip conform`" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_report_that_cannot_be_written_is_printed_all_the_same(tmp_path, capsys):
    file = tmp_path / "r.json"
    file.symlink_to("/dev/full")
    assert conform("--backend", "fake", "--only", "P1", "--output", str(file)) == 2
    said = capsys.readouterr()
    assert "registration     1 " in said.out
    assert f"--output: cannot write to {file}: No space left on device" in said.err


def test_a_folder_as_output_is_refused_before_anything_is_run(tmp_path, capsys):
    folder = tmp_path / "r.json"
    folder.mkdir()
    assert conform("--backend", "fake", "--output", str(folder)) == 2
    said = capsys.readouterr()
    assert f"--output: {folder} is a folder" in said.err and "to run" not in said.err


def test_inconclusive_is_told_on_standard_error_and_is_no_failure(monkeypatch, capsys):
    from anychip.cli import conform as command
    from anychip.conform.proof import Level, inconclusive
    from anychip.conform.report import report_of
    from anychip.conform.result import Result
    from anychip.conform.selection import Selection

    result = Result("M4", Level.MEMORY, inconclusive("give it more memory"))
    report = report_of([result], {"chip": {"name": "fake"}}, Selection())
    monkeypatch.setattr(command, "_prove", lambda *asked: report)
    assert conform("--backend", "fake") == 0
    said = capsys.readouterr()
    assert "INCONCLUSIVE  memory  M4: give it more memory" in said.out
    assert "1 check proves nothing here: INCONCLUSIVE" in said.err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--backend", "basalt"], "no chip 'basalt' is installed"),
        (["--level", "kernels"], "'kernels' is no level"),
        (["--only", "Z1"], "'Z1' matches no check"),
        (["--only", "O1:rms_nrom", "--backend", "fake"], "nearest is 'O1:rms_norm'"),
        (["--check-timeout", "0"], "--check-timeout: 0.0"),
        (["--json", "--verbose"], "--verbose: --json prints every result"),
        (["--output", "report.txt"], "must end in .json or .md"),
        (["--output", "/nowhere/r.json"], "there is no such folder"),
        (["--chip-option", "memroy=1", "--backend", "fake"], "no option 'memroy'"),
        (["--device-index", "9", "--backend", "fake"], "no device 9; there are: 0"),
        (["--model-path", "M"], "--model-path is a flag of `anychip serve`"),
        (["diff", "a.json"], "AFTER.json"),
        (["diff", "/nowhere/a.json", "b.json"], "/nowhere/a.json: cannot be read"),
    ],
)
def test_a_wrong_line_exits_with_2_and_says_what_is_wrong(capsys, words, message):
    assert conform(*words) == 2
    assert message in capsys.readouterr().err


def test_a_terminal_shows_a_bar_and_keeps_what_is_not_in_order():
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    from anychip.cli.progress import Bar
    from anychip.conform.proof import Level, failed, passed
    from anychip.conform.result import Listed, Result

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    with Progress(TextColumn("{task.completed}:{task.fields[check]}"), console=console) as bar:
        watcher = Bar(bar)
        watcher.level_begins(Level.MEMORY, 2)
        watcher.check_begins(Listed("M1", Level.MEMORY))
        watcher.check_ended(Result("M1", Level.MEMORY, passed("exact")))
        watcher.check_begins(Listed("M7", Level.MEMORY, "fill"))
        watcher.check_ended(Result("M7 fill", Level.MEMORY, failed("told at the end")))
    assert "FAIL M7 fill" in screen.getvalue() and "told at" not in screen.getvalue()
    assert "exact" not in screen.getvalue() and "2:M7 fill" in screen.getvalue()


def ends(pid: str) -> bool:
    """Whether a process is gone, or is within some seconds."""
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
)
def test_whatever_ends_the_kit_ends_the_process_of_the_check_too(
    tmp_path, monkeypatch, number, code
):
    pid = tmp_path / "pid"
    fault = f"open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    install(tmp_path / "site", monkeypatch, fault)
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    line = [sys.executable, "-m", "anychip", "conform", "--backend", "sandstone"]
    line += ["--only", "P1", "--only", "D3"]
    running = subprocess.Popen(
        line, env={**os.environ, "PYTHONPATH": path}, stdout=-1, stderr=-1, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(number)
        out, err = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == code
    assert ends(pid.read_text())
    if code == 130:  # what was proved until then is told
        assert "sandstone keeps what was checked: 1 PASS" in out and "anychip: interrupted" in err
