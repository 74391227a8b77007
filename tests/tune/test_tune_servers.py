"""Servers that tune starts, loads and ends; the budget and the doctor that come before."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import dawdling_chip
import msgspec
import pytest

import anychip.bench.tune.prepare as prepare_module
from anychip.bench.load.calls import Answer, Failure, LoadError, Run
from anychip.bench.load.figures import Slo
from anychip.bench.load.scaling import Scaling
from anychip.bench.load.traces import read_trace
from anychip.bench.sound import NotSound, soundness
from anychip.bench.tune.budget import check_lengths, find_budget, pages_each, window
from anychip.bench.tune.measure import Asked, measure, measured
from anychip.bench.tune.prepare import Question, prepare
from anychip.bench.tune.servers import Server, ServerFailed
from anychip.bench.tune.state import Runs
from anychip.config import ConfigError, ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.model.tiny import write_tiny
from served import alive

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
REQUESTS, TOKENS = 8, 4


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A model, a trace whose requests all come at once, and the chip."""
    folder = tmp_path_factory.mktemp("tuned")
    write_tiny(folder, context=512).rename(folder / "model.gguf")
    lines = f"2023-11-16 18:17:03.5,12,{TOKENS}\n" * REQUESTS
    (folder / "trace.csv").write_text(HEAD + lines)
    with dawdling_chip.installed(folder):
        yield folder


def config_of(site: Path, **changes) -> ServeConfig:
    return ServeConfig(model_path=str(site / "model.gguf"), backend="dawdling", **changes)


def words(site: Path, running: int, *more: str) -> list[str]:
    base = [
        "--backend",
        "dawdling",
        "--model-path",
        str(site / "model.gguf"),
        "--skip-server-warmup",
    ]
    return [*base, "--max-running-requests", str(running), *more]


def asked(site: Path) -> Asked:
    trace = read_trace(site / "trace.csv")
    return Asked(trace=trace, scaling=Scaling(), speed=1.0, slo=Slo(ttft_s=1e6))


def test_more_at_once_is_faster_where_a_step_takes_as_long_for_all(site, tmp_path) -> None:
    """One at a time waits for 32 steps, eight together for about four."""
    slow = ("--chip-option", "seconds=0.05")
    one = measure(asked(site), words(site, 1, *slow), tmp_path / "1.log")
    eight = measure(asked(site), words(site, 8, *slow), tmp_path / "8.log")
    assert one.failed == eight.failed == 0
    assert one.seconds > 0.05 * REQUESTS * (TOKENS - 1)
    assert eight.throughput > one.throughput
    assert eight.ttft_s is not None
    assert one.ttft_s is not None
    assert eight.ttft_s < one.ttft_s
    assert one.hit_rate == 0  # the warm-up asked for the same, and left nothing in the cache
    assert one.goodput == pytest.approx(REQUESTS / one.seconds)


def test_a_server_ends_with_its_block(site, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ANYCHIP_API_KEY", "a-key-of-a-shell-0123456789")
    with Server(words(site, 1), tmp_path / "log") as server:
        pid = server.pid
        assert pid is not None
        assert alive(pid)
        assert server.url.startswith("http://127.0.0.1:")
    assert not alive(pid)
    assert server.pid is None
    assert "key" not in (tmp_path / "log").read_text()


def test_a_server_that_cannot_start_tells_the_end_of_its_log(site, tmp_path) -> None:
    with pytest.raises(ServerFailed, match=r"(?s)the server ended with 2; .*--page-size"):
        Server(words(site, 1, "--page-size", "0"), tmp_path / "log").__enter__()


def test_figures_are_of_whole_answers() -> None:
    times = {"scheduled_s": 0.0, "sent_s": 0.0}
    good = Answer(
        id="1", first_s=0.5, last_s=1.5, end_s=2.0, gaps=(1.0,), output_tokens=5,
        prompt_tokens=10, cached_tokens=4, **times,
    )  # fmt: skip
    lost = Failure(kind="busy", text="no room", status=503)
    bad = Answer(id="2", end_s=4.0, output_tokens=9, failure=lost, **{**times, "sent_s": 0.25})
    run = Run(loop="open", answers=(good, bad), seconds=4.0)
    found = measured(run, Slo())
    assert found.figures() == {"throughput": 1.25, "ttft": 0.5, "tpot": 0.25}
    assert (found.failed, found.failure, found.late_s) == (1, "no room", 0.25)
    assert found.hit_rate == 0.4
    assert found.at_once == 2
    assert measured(run, Slo(ttft_s=0.4)).goodput == 0
    assert measured(run, Slo(ttft_s=0.6)).goodput == 0.25
    with pytest.raises(LoadError, match="no request was sent"):
        measured(Run(loop="open", answers=(), seconds=0.0), Slo())


def test_the_window_is_the_most_that_fits() -> None:
    assert window(lambda running: 100 - running, 10, 64) == 9
    assert window(lambda running: 1000, 10, 64) == 64
    assert window(lambda running: 1000, 10, 1) == 1
    assert window(lambda running: 130, 10, 64) == 13
    assert window(lambda running: 0, 10, 64) == 1
    assert pages_each([(16, 16), (17, 16)], 16) == 2.5


def test_the_budget_of_a_device(site) -> None:
    """Two layers of two heads of 16 float32 numbers, keys and values: 512 bytes a token."""
    config = config_of(site, chip_option={"memory": "6M"})
    found = find_budget(config, [(300, 200)] * 60 + [(200, 50)] * 4)
    assert found.page_size == 16
    assert found.memory["cache pages"] == (found.pages + 1) * 16 * 512
    assert 1 < found.window < 64
    assert found.pages >= found.window * (60 * 32 + 4 * 16) / 64
    assert found.at_longest == found.pages // 32
    assert (found.running, found.chunk, found.requests) == (64, 1024, 64)
    told = "\n".join(found.told())
    assert f"{found.pages:,} pages of 16 = {found.tokens:,} tokens" in told
    assert "64 is over the batch window" in told
    with pytest.raises(ConfigError, match=r"1 of 2 requests are longer .* 700; scale"):
        check_lengths(found, [(600, 100), (5, 5)])


def test_a_chip_that_is_not_sound_is_not_tuned() -> None:
    good, unsure = Finding("a", Verdict.GOOD, "well"), Finding("b", Verdict.UNKNOWN, "who knows")
    assert soundness([good, unsure], "c0", force=False, done="tuned") == (
        "doctor: nothing is red on c0",
        False,
    )
    bad = Finding("c", Verdict.BAD, "ones were not added", "look for another device")
    with pytest.raises(NotSound, match=r"c: ones were not added.*--force") as refused:
        soundness([good, bad], "c0", force=False, done="tuned")
    assert "next: look for another device" in str(refused.value)


def test_who_forces_it_is_told_and_goes_on_as_it_began(site, tmp_path, monkeypatch) -> None:
    config = config_of(site, chip_option={"red": "true"})
    file = site / "trace.csv"
    files = {"file": file, "trace": read_trace(file), "output": tmp_path}
    question = Question(config=config, local=config, force=True, **files)
    said: list[str] = []
    forced = prepare(question, said.append)
    smaller = msgspec.structs.replace(forced.budget, window=2)
    assert forced.forced
    assert forced.doctor.startswith(
        "doctor: RED on dawdling, tuned because of --force: device: ones"
    )
    assert forced.plan.variables[0].values == ("1", "2", "4", "8")
    with Runs(tmp_path, forced.plan, resume=False):
        pass
    later = dataclasses.replace(question, resume=True)
    monkeypatch.setattr(prepare_module, "find_budget", lambda config, lengths: smaller)
    monkeypatch.setattr(prepare_module, "examine", lambda config, model: ())
    assert prepare(later, said.append).plan.variables == forced.plan.variables
    assert prepare(question, said.append).plan.variables[0].values == ("1", "2")
    assert any(line.startswith("batch window: 8 of them at once (all)") for line in said)
