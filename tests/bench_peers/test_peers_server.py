"""A server is started, timed, measured and ended; what is wrong with one is told."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from race.completions import WrongAnswer
from race.figures import figures_of
from race.measure import busy_share
from race.processes import end, family, memory_of
from race.server import Server, ServerFailed, free_port
from race.workloads import Batch, Job

SCRIPT = Path(__file__).with_name("scripted_completions.py")
PAIR = Batch("W2", (Job((1, 2, 3, 4, 5, 6), 3), Job((7,) * 8, 5)), 2)
LIMIT = 60


def started(folder: Path, fault: str = "") -> Server:
    port = free_port()
    command = ["env", "KIND=scripted", sys.executable, str(SCRIPT), str(port), fault]
    return Server(command, port, folder / "server.log")


def pids_of(server: Server) -> list[int]:
    return family(server._process.pid)


def test_a_sound_server_is_measured_and_ended(tmp_path) -> None:
    with started(tmp_path) as server:
        assert server.first_token(LIMIT) > 0
        run = server.run(PAIR, LIMIT)
        pids = pids_of(server)
    assert [answer.tokens for answer in run.answers] == [3, 5]
    assert all(0 < answer.first <= answer.last <= run.wall for answer in run.answers)
    found = figures_of(run)
    assert found["output_tokens"] == 8 and found["hit_rate"] == 7 / 14 and found["counted"] is True
    assert server.memory.processes == 1 and server.memory.peak >= server.memory.shared_once > 1
    assert server.stubborn == []
    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_server_that_is_still_loading_is_waited_for(tmp_path) -> None:
    with started(tmp_path, "loads") as server:
        assert server.first_token(LIMIT) >= 0.4


def test_tokens_that_nobody_counts_are_told_apart(tmp_path) -> None:
    with started(tmp_path, "tells no usage") as server:
        server.first_token(LIMIT)
        found = figures_of(server.run(PAIR, LIMIT))
    assert found["counted"] is False and found["output_tokens"] == 8 and "hit_rate" not in found


@pytest.mark.parametrize(
    ("fault", "told"),
    [("dies", "ended with 1.*no such model"), ("refuses", "HTTP 400")],
)
def test_a_server_that_does_not_start_tells_why(tmp_path, fault, told) -> None:
    with started(tmp_path, fault) as server, pytest.raises(ServerFailed, match=f"(?s){told}"):
        server.first_token(LIMIT)


def test_an_answer_that_ends_early_counts_for_nothing(tmp_path) -> None:
    with started(tmp_path, "stops") as server:
        server.first_token(LIMIT)
        with pytest.raises(WrongAnswer, match=r"asked for [35] tokens, got [24].*'stop'"):
            server.run(PAIR, LIMIT)


def test_an_error_within_the_stream_is_told(tmp_path) -> None:
    with started(tmp_path, "fails") as server:
        server.first_token(LIMIT)
        with pytest.raises(ServerFailed, match=r"W2: Refused.*out of memory"):
            server.run(PAIR, LIMIT)


def test_a_batch_is_bounded(tmp_path) -> None:
    with started(tmp_path, "hangs") as server:
        server.first_token(LIMIT)
        with pytest.raises(ServerFailed, match=r"W2 took longer than 0\.5 s"):
            server.run(PAIR, 0.5)


def test_children_are_counted_and_ended_even_those_that_stay(tmp_path) -> None:
    with started(tmp_path, "stays") as server:
        server.first_token(LIMIT)
        for _ in range(600):  # until the child holds what it takes
            pids = pids_of(server)
            if memory_of(pids).shared_once > 32:
                break
            time.sleep(0.05)
        assert memory_of(pids).shared_once > 32
        stubborn = end(server._process, grace=0.5)
    assert len(pids) == 2 and stubborn == pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids[:1])


def test_ended_processes_hold_nothing() -> None:
    assert memory_of([2**22 + 1]).processes == 0
    assert memory_of([os.getpid()]).peak > 1


def test_busy_share_is_what_was_not_idle() -> None:
    told = iter(["cpu  10 0 10 100 20 0 0 0 0 0", "cpu  20 0 20 160 40 0 0 0 0 0"])
    assert busy_share(0, lambda: next(told)) == pytest.approx(20 / 100)
