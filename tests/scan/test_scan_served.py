"""`anychip scan` on running servers: a lock is named, a chip that is not sound refused."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import made_evidence as made
import msgspec
import pytest
from scan_servers import served

from anychip.bench import sound
from anychip.bench.load.calls import LoadError
from anychip.bench.load.client import LoadClient
from anychip.bench.scan import Plan, Scan
from anychip.bench.scan_report import COLUMNS, summary
from anychip.cli import diagnose, scan
from anychip.config import ConfigError
from anychip.contract.build import Finding, Verdict
from served import ENVIRONMENT, wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "load"))
QUICK = ("--requests-per-level", "5", "--input-tokens", "8", "--output-tokens", "3")


def scanned(url, *flags, levels="1,2,4"):
    return scan.run(["--url", url, "--concurrency", levels, *QUICK, *flags])


@pytest.fixture
def no_doctor(monkeypatch):
    monkeypatch.setattr(sound, "examine", lambda config, model: ())


def test_a_lock_is_named_with_its_line(slow, no_doctor, capsys, tmp_path):
    assert scanned(slow, "--output", str(tmp_path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cause"] == "lock" and found["loop"] == "closed"
    assert "chips/fake/operators_lock.py" in found["text"]
    levels = found["levels"]
    assert [level["concurrency"] for level in levels] == [1, 2, 4]
    assert all(level["causes"][0] == "lock" for level in levels)
    assert any(level["running"] > 0 for level in levels)
    steps = [level["composition"] for level in levels if level["composition"]]
    assert any(step["decoded"] > 0 and step["steps_per_second"] > 0 for step in steps)
    assert all(level["figures"]["succeeded"] >= 5 for level in levels)
    assert found["law"]["rate"] > 0 and levels[1]["gain"][1] <= levels[1]["gain"][0]
    assert json.loads((tmp_path / "scan.json").read_text()) == found
    text = (tmp_path / "scan.md").read_text()
    assert f"| {' | '.join(COLUMNS)} |" in text and "operators_lock.py" in text
    assert (tmp_path / "scan.png").read_bytes().startswith(b"\x89PNG")


def test_a_few_levels_have_no_fit(healthy, no_doctor, capsys):
    assert scan.run(["--url", healthy, "--concurrency", "1..2", "--seconds", "1"]) == 0
    text = capsys.readouterr().out
    assert "doctor: nothing is red on fake:0" in text and "closed loop" in text
    assert "no fit: it needs 3 levels, there are 2" in text


def test_the_doctor_looks_at_the_servers_chip():
    """The options travel: this one leaves nothing to hold a copy."""
    info = made.seen().info
    options = {"backend": "fake", "device_index": 0, "chip_option": {"memory": "64"}}
    info = msgspec.structs.replace(info, config=options)
    config, why = sound.chip_of(info, "http://127.0.0.1:1")
    assert why == ""
    with pytest.raises(sound.NotSound, match="--force it is scanned all the same"):
        sound.soundness(sound.examine(config, model=False), "fake:0", force=False, done="scanned")
    config, why = sound.chip_of(info, "http://far.example")
    assert config is None and "far.example is not this machine" in why


def test_a_chip_that_is_not_sound_is_refused(healthy, monkeypatch, capsys):
    wrong = Finding("copies", Verdict.BAD, "byte 5 came back as 0", "mend copy_out")
    monkeypatch.setattr(sound, "examine", lambda config, model: (wrong,))
    with pytest.raises(sound.NotSound, match=r"copies: byte 5 .* next: mend copy_out .*--force"):
        scanned(healthy)
    assert scanned(healthy, "--force", levels="1,2") == 0
    assert "doctor: RED on fake:0, scanned because of --force" in capsys.readouterr().out


def test_a_server_that_is_not_ours(capsys):
    from scripted_server import plain_server

    with plain_server() as server:
        assert scanned(server.url) == 0
    text = capsys.readouterr().out
    assert "cause not known: no evidence from this server" in text
    assert "the doctor was not asked: this server is not one of ours" in text
    bodies = [body for _, body, _ in server.seen]
    assert {body["model"] for body in bodies} == {"sound"}
    assert all(isinstance(body["prompt"], str) and body["ignore_eos"] for body in bodies)


class Stopper:
    """Interrupts the scan when a level begins."""

    def __init__(self, concurrency):
        self.concurrency, self.levels = concurrency, []

    def begins(self, concurrency, number, of, left_s):
        if concurrency == self.concurrency:
            asyncio.current_task().cancel()

    def ended(self, level):
        self.levels.append(level.concurrency)


def test_an_interrupted_scan_keeps_its_levels():
    from scripted_server import plain_server

    async def load(url, stopper):
        async with LoadClient(url, "sound") as client:
            plan = Plan(levels=(1, 2, 4), requests=2, input=4, output=2)
            return await Scan(client, plan, stopper).run()

    with plain_server() as server:
        stopper = Stopper(4)
        found = asyncio.run(load(server.url, stopper))
        assert found.interrupted and stopper.levels == [1, 2] and len(found.levels) == 2
        assert summary(found)[0].startswith("interrupted")
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(load(server.url, Stopper(1)))


class Breaker(Stopper):
    """The server answers nothing from that level on."""

    client = None

    def begins(self, concurrency, number, of, left_s):
        if concurrency == self.concurrency:
            self.client.model = "fails"


def test_a_server_that_dies_leaves_the_levels_before_it():
    from scripted_server import plain_server

    async def load(url, breaker):
        async with LoadClient(url, "sound") as breaker.client:
            plan = Plan(levels=(1, 2, 4), requests=2, input=4, output=2)
            return await Scan(breaker.client, plan, breaker).run()

    with plain_server() as server:
        found = asyncio.run(load(server.url, Breaker(4)))
        assert [level.concurrency for level in found.levels] == [1, 2]
        assert found.broken == "no answer with 4 requests at once: server: it fails"
        assert summary(found)[0].startswith(f"the scan ended early: {found.broken}")
        with pytest.raises(LoadError, match="no answer with 1 requests"):
            asyncio.run(load(server.url, Breaker(1)))


def test_one_level_tells_of_no_doubling():
    from scripted_server import plain_server

    async def load(url):
        async with LoadClient(url, "sound") as client:
            plan = Plan(levels=(1,), requests=2, input=4, output=2)
            return await Scan(client, plan, Breaker(0)).run()

    with plain_server() as server:
        told = summary(asyncio.run(load(server.url)))[0]
    assert told.startswith("one level alone tells no gain: add levels to --concurrency")


def test_an_interruption_before_the_first_level_is_through_is_told():
    from scripted_server import plain_server

    words = ["-m", "anychip", "scan", "--concurrency", "1", "--input-tokens", "4", "--url"]
    with plain_server() as server:
        server.gate.clear()  # no answer ends
        process = subprocess.Popen(
            [sys.executable, *words, server.url],
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: any("completions" in str(one) for one in server.seen))
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130
    assert "interrupted before a level was through: nothing to tell" in said


def test_prompts_that_are_too_long_name_the_flag(healthy, no_doctor):
    with pytest.raises(ConfigError, match=r"the context of .*; see --input-tokens"):
        scanned(healthy, "--input-tokens", "5000", levels="1")


def test_a_server_whose_key_is_not_the_admins(tiny, no_doctor, capsys, monkeypatch):
    monkeypatch.setenv("ANYCHIP_API_KEY", "open")
    keys = {"ANYCHIP_API_KEY": "open", "ANYCHIP_ADMIN_API_KEY": "boss"}
    with served(tiny, **keys) as url:
        assert scanned(url, levels="1,2") == 0
        text = capsys.readouterr().out
        assert "cause not known: no evidence from this server (no look at its threads" in text
        assert "needs the admin key" in text
        assert diagnose.run(["--url", url, "--seconds", "0.5"]) == 2
        told = "put a key that may do so into ANYCHIP_API_KEY"
        assert told in capsys.readouterr().err


def test_calls_that_are_all_refused_end_it():
    from scripted_server import plain_server

    with (
        plain_server() as server,
        pytest.raises(ConfigError, match="no answer with 1 requests at once: refused: it refuses"),
    ):
        scanned(server.url, "--model", "refuses")


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("1..64", (1, 2, 4, 8, 16, 32, 64)),
        ("3..20", (3, 6, 12, 20)),
        ("4..4", None),
        ("5", (5,)),
        ("1,3,9", (1, 3, 9)),
        ("0..4", None),
        ("4,2", None),
        ("1..", None),
        ("1..9999", None),
        ("many", None),
    ],
)
def test_levels(text, levels):
    if levels is not None:
        assert scan.levels_of(text) == levels
        return
    with pytest.raises(ConfigError, match="--concurrency: '"):
        scan.levels_of(text)


def test_two_ends_of_a_level_are_refused():
    with pytest.raises(ConfigError, match="--seconds and --requests-per-level"):
        scan.run(["--seconds", "5", "--requests-per-level", "5"])
