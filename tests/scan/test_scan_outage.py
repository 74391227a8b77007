"""`anychip scan` of a server that goes away: the level is lost, the others are kept."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from anychip.bench.load.calls import Answer, Failure, LoadError
from anychip.bench.load.client import LoadClient
from anychip.bench.outage import Outage
from anychip.bench.scan import Plan, Scan
from anychip.bench.scan_report import summary
from anychip.cli import scan
from anychip.engine.supervisor import RestartPolicy
from served import config_for, model_folder, running

sys.path.insert(0, str(Path(__file__).parents[1] / "load"))
PLAN = Plan(levels=(1, 2, 4), requests=2, input=4, output=2)


class Breaker:
    """Does something when a level begins."""

    def __init__(self, concurrency, act):
        self.concurrency, self.act = concurrency, act
        self.levels, self.gone = [], []

    def begins(self, concurrency, number, of, left_s):
        if concurrency == self.concurrency:
            self.act()

    def ended(self, level):
        self.levels.append(level.concurrency)

    def lost(self, level):
        self.gone.append(level.concurrency)


async def scanned(url, model, breaker, plan=PLAN, ready_s=60.0):
    async with LoadClient(url, model) as client:
        return await Scan(client, plan, breaker, ready_s=ready_s).run()


@pytest.fixture
def restarting(tmp_path):
    folder = model_folder(tmp_path / "model")
    with running(config_for(folder), RestartPolicy(first_pause_s=0.5, deaths=9)) as server:
        yield server


def killed(server, concurrency):
    return Breaker(concurrency, lambda: os.kill(server.service.client.pid, signal.SIGKILL))


def test_a_level_in_which_the_engine_dies_is_lost_and_the_others_are_kept(restarting):
    breaker, name = killed(restarting, 2), restarting.service.model_name
    found = asyncio.run(scanned(restarting.url, name, breaker))
    assert [level.concurrency for level in found.levels] == breaker.levels == [1, 4]
    assert [one.concurrency for one in found.lost] == breaker.gone == [2] and not found.broken
    assert summary(found)[0].startswith("LOST: 2 at once: the server went away")
    with restarting.http() as http:
        shown = http.get("/metrics").text
    counts = re.findall(r'responses_total.*/v1/completions.*status="50[03]".* (\d+)\.0', shown)
    assert sum(map(int, counts)) <= 2  # nobody asks a dead engine again and again


def test_a_scan_of_which_nothing_is_left_is_an_error(restarting):
    name, plan = restarting.service.model_name, Plan(levels=(2,), requests=2, input=4, output=2)
    with pytest.raises(LoadError, match="no level is whole: the server went away"):
        asyncio.run(scanned(restarting.url, name, killed(restarting, 2), plan))


def test_a_server_that_does_not_come_back_ends_it():
    from scripted_server import plain_server

    with plain_server() as server:
        breaker = Breaker(2, server.end)
        found = asyncio.run(scanned(server.url, "sound", breaker, ready_s=0.0))
    assert [level.concurrency for level in found.levels] == [1]
    assert "went away with 2 requests at once, and was not ready again within" in found.broken


def test_what_was_lost_is_not_exit_code_0(restarting, monkeypatch, capsys):
    monkeypatch.setattr(scan, "Progress", lambda: killed(restarting, 2))
    monkeypatch.setattr(scan, "_soundness", lambda info, options: [])
    flags = ("--concurrency", "1,2,4", "--requests-per-level", "2", "--output-tokens", "2")
    assert scan.run(["--url", restarting.url, "--input-tokens", "4", *flags]) == 2
    assert "LOST: 2 at once" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("failures", "gone"),
    [
        ([("server", 503)], True),
        ([("busy", 503)] * 9, False),
        ([("server", 500)] * 9, False),
        ([("connect", None)] * 2, False),
        ([("connect", None), None, ("connect", None), ("connect", None)], False),
        ([("connect", None)] * 3, True),
    ],
)
def test_which_failures_mean_that_it_is_gone(failures, gone):
    outage = Outage(3)
    for one in failures:
        failure = None if one is None else Failure(kind=one[0], text="t", status=one[1])
        outage.hear(Answer(id="a", scheduled_s=0.0, sent_s=0.0, end_s=0.0, failure=failure))
    assert bool(outage.why) is gone
