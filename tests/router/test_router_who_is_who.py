"""What the router tells of who its workers are: their chips, who left, and one server met twice."""

from __future__ import annotations

import pytest
from routed import ScriptedWorker, completion, routing, scripted

from served import wait_until

COMPLETIONS = "/v1/completions"


def test_a_worker_that_was_removed_is_told_as_gone_until_it_comes_back():
    state = 'anychip_router_worker_state{{chip="unknown",state="{}",worker="two"}} 1.0'
    with scripted("one", "two") as pair, routing(pair) as router, router.http() as http:
        assert state.format("ready") in http.get("/metrics").text
        http.delete("/workers/two")
        shown = http.get("/metrics").text
        assert state.format("gone") in shown and state.format("ready") not in shown
        assert 'anychip_router_worker_calls{chip="unknown",worker="two"} 0.0' in shown
        http.post("/workers", json={"name": "two", "url": pair[1].url})
        router.wait_for("two")
        shown = http.get("/metrics").text
        assert state.format("ready") in shown and state.format("gone") not in shown


@pytest.mark.parametrize("chip", ["", "two\nlines", "x" * 65, 7, None])
def test_what_a_worker_calls_its_chip_is_a_name_or_unknown(chip):
    info = {"engine": {"backend": chip}}
    odd = ScriptedWorker("odd", info=info).start()
    try:
        with routing([odd]) as router, router.http() as http:
            assert router.state("odd")["chip"] is None
            assert 'state="ready",worker="odd"} 1.0' in http.get("/metrics").text
            info["engine"]["backend"] = "fast"
            wait_until(lambda: router.state("odd")["chip"] == "fast")
            http.post(COMPLETIONS, json=completion())
            shown = http.get("/metrics").text
            assert 'chip="unknown"' not in shown
            assert 'tries_total{chip="fast",result="answered",worker="odd"} 1.0' in shown
    finally:
        odd.stop()


def test_one_server_under_two_addresses_is_found_out(caplog):
    caplog.set_level("INFO")
    info = {"instance_id": "abc", "engine": {"backend": "fast"}}
    with scripted("one", "two") as pair:
        for worker in pair:
            worker.info = dict(info)
        with routing(pair, wait=False) as router, router.http() as http:
            wait_until(lambda: "same server as" in str(http.get("/workers").json()))
            told = {one["state"]: one for one in http.get("/workers").json()["workers"]}
            first, second = told["ready"], told["starting"]
            assert f"same server as {first['name']!r} at {first['url']}" in second["reason"]
            assert f"DELETE /workers/{second['name']}" in second["reason"]
            warned = [r for r in caplog.records if "same server" in r.getMessage()]
            assert [r.levelname for r in warned] == ["WARNING"]
            answers = [http.post(COMPLETIONS, json=completion()) for _ in range(4)]
            assert {one.headers["x-anychip-worker"] for one in answers} == {first["name"]}
            http.delete(f"/workers/{first['name']}")
            router.wait_for(second["name"])
        pair[1].info["instance_id"] = "other"
        with routing(pair) as router:
            assert router.state("two")["state"] == "ready", "another server"
            assert router.http().get("/server_info").json()["instance_id"] == router.desk.id
