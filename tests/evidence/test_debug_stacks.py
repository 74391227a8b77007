"""`/debug/stacks` of a running server: who may ask, what is refused, what it tells."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest

from anychip.engine.evidence import IO, Evidence
from served import bearer, config_for, model_folder, running, wait_until

QUICK = {"seconds": 0.2, "hertz": 50}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(folder):
    with running(config_for(folder, admin_api_key="boss")) as server:
        yield server


def ask(server, path="/debug/stacks", key="boss", **query):
    with server.http() as http:
        return http.get(path, params=query, headers=bearer(key))


def test_an_idle_server_waits(server):
    found = msgspec.json.decode(ask(server, **QUICK).content, type=Evidence)
    own, engine = found.process("server"), found.process("engine")
    assert own.pid == os.getpid() != engine.pid
    assert own.thread("http").share([IO]) > 0.5
    assert engine.thread("loop").spots[0].layer == "engine"
    assert engine.thread("loop").share([IO]) > 0.5
    assert found.machine.core_busy and engine.resident_bytes > 2**20
    info = ask(server, "/server_info").json()
    assert info["pids"] == {"server": own.pid, "engine": engine.pid}


def test_it_is_an_admin_action(server):
    answer = ask(server, key="other", **QUICK)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "admin_key_required"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"seconds": 31}, "seconds is 31; it must lie in 0.05 to 30"),
        ({"seconds": "nan"}, "seconds is nan"),
        ({"hertz": 0}, "hertz is 0; it must lie in 1 to 200"),
        ({"seconds": "long"}, "seconds is 'long', which is no number"),
        ({"second": 1}, "unknown parameter 'second'"),
    ],
)
def test_wrong_queries_are_refused(server, query, words):
    answer = ask(server, **query)
    assert answer.status_code == 400 and words in answer.json()["error"]["message"]


def test_one_look_at_a_time(server):
    over, codes = threading.Event(), set()

    def look():
        while not over.is_set():
            answer = ask(server, **QUICK)
            codes.add((answer.status_code, answer.json().get("error", {}).get("code")))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(codes) > 1)
    over.set()
    for thread in threads:
        thread.join()
    assert codes == {(200, None), (409, "look_under_way")}
    assert ask(server, **QUICK).status_code == 200


def test_an_engine_that_dies_meanwhile(folder):
    with running(config_for(folder)) as server:
        killed = threading.Timer(0.5, lambda: os.kill(server.service.client.pid, 9))
        killed.start()
        answer = ask(server, seconds=20)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_unavailable"
