"""Workers that start, sicken, come back, are added and removed; what is asked of one alone."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from routed import ScriptedWorker, completion, events_of, routing, scripted

from anychip.router.load_book import Load, LoadBook
from anychip.router.worker import LONGEST_PAUSE_S, Facts, Worker
from anychip.settings.router import HealthSettings, WorkerPlace
from served import wait_until

COMPLETIONS, RESPONSES = "/v1/completions", "/v1/responses"
ADMIN = {"authorization": "Bearer boss"}


def a_worker(**changes) -> Worker:
    return Worker(WorkerPlace("w", "http://h"), HealthSettings(**changes))


def test_a_worker_is_sick_after_failures_in_a_row_and_well_after_good_looks():
    worker = a_worker(breaker_failures=3, breaker_successes=2)
    worker.looked(Facts())
    assert worker.state == "ready", "the first good look is enough for one that starts"
    assert [worker.failed("x"), worker.failed("x")] == [False, False]
    worker.answered()
    assert [worker.failed("x") for _ in range(3)] == [False, False, True]
    assert (worker.state, worker.reason) == ("sick", "3 calls failed: x")
    worker.looked(Facts())
    assert worker.state == "sick"
    worker.looked(Facts())
    assert (worker.state, worker.reason) == ("ready", "")


def test_good_looks_do_not_excuse_failing_calls():
    worker = a_worker(breaker_failures=3)
    for _ in range(3):
        worker.looked(Facts())
        worker.failed("x")
    assert worker.state == "sick"


def test_looks_at_a_sick_worker_grow_rarer_and_a_call_that_goes_well_ends_that():
    worker = a_worker(health_check_interval_s=1.0, breaker_failures=1, breaker_successes=1)
    worker.looked(Facts())
    pauses = []
    for _ in range(4):
        worker.failed("x")
        pauses.append(worker.pause_s)
        worker.looked(Facts())
        assert worker.pause_s == 1.0
    assert pauses == [1.0, 2.0, 4.0, 8.0], "each time that it fails again at once"
    worker.answered()
    worker.failed("x")
    assert worker.pause_s == 1.0
    for _ in range(20):
        worker.looks_unwell("away")
    assert worker.pause_s == LONGEST_PAUSE_S


def test_a_worker_that_says_so_is_out_at_once_and_in_again_at_once():
    worker = a_worker()
    worker.looked(Facts())
    worker.says_not_ready("restarting")
    assert (worker.state, worker.reason) == ("sick", "restarting")
    worker.looked(Facts())
    assert worker.state == "ready"


def test_a_new_process_means_an_empty_cache():
    worker = a_worker()
    assert not worker.looked(Facts(instance="1"))
    assert not worker.looked(Facts(instance="1"))
    assert worker.looked(Facts(instance="2"))


def test_the_book_holds_what_is_in_flight_and_nothing_else():
    book = LoadBook()
    first, second = book.begun("a", 10), book.begun("a", 5)
    book.check()
    assert book.of("a") == Load(2, 15) and book.of("b") == Load(0, 0)
    book.ended(first)
    with pytest.raises(KeyError):
        book.ended(first)
    book.check()
    book.ended(second)
    assert book.of("a") == Load(0, 0)


def test_a_worker_that_starts_later_is_found_and_what_it_tells_is_shown():
    info = {
        "engine": {"backend": "fake", "max_running": 7, "pages": 10, "page_size": 16},
        "pids": {"server": 1, "engine": 2},
    }
    late = ScriptedWorker("late", info=info)
    late.ready_status = 503
    with routing([late], wait=False) as router, router.http() as http:
        late.start()
        wait_until(lambda: router.state("late")["reason"] == "it was told to say so")
        assert "it was told to say so" in http.get("/ready").json()["error"]["message"]
        late.ready_status = 200
        router.wait_for("late")
        told = router.state("late")
        assert http.get("/ready").json()["workers"] == ["late"]
        shown = [told[name] for name in ("chip", "window", "cache_tokens", "models", "reason")]
        assert shown == ["fake", 7, 160, ["m"], None]
        assert http.get("/server_info").json()["workers"] == [told]
    late.stop()


def test_flapping_health_never_changes_the_load_and_a_sick_worker_gets_nothing():
    with scripted("flaps", "other") as (flaps, other), routing([flaps, other]) as router:
        call = completion("hold", stream=True)
        with router.http() as http, http.stream("POST", COMPLETIONS, json=call) as answer:
            lines = (line for line in answer.iter_lines() if line)
            next(lines)
            held = flaps if answer.headers["x-anychip-worker"] == "flaps" else other
            for _ in range(3):
                held.ready_status = 503
                router.wait_for(held.name, state="sick")
                told = router.state(held.name)
                assert (told["calls"], told["prompt_tokens"]) == (1, 1)
                with router.http() as more:
                    found = more.post(COMPLETIONS, json=completion()).headers["x-anychip-worker"]
                assert found != held.name
                held.ready_status = 200
                router.wait_for(held.name)
                assert router.state(held.name)["calls"] == 1
            router.check_book()
            held.gate.set()
            assert list(lines)[-1] == "data: [DONE]", "what it had begun went on"
        wait_until(lambda: router.state(held.name)["calls"] == 0)
        router.check_book()


def test_workers_come_and_go_by_the_admins_word():
    with (
        scripted("one", "two") as (one, two),
        routing([one], admin_api_key="boss") as router,
        router.http() as http,
    ):
        new = {"name": "two", "url": two.url + "/v1/", "tags": ["big"], "weight": 2}
        assert http.post("/workers", json=new).status_code == 403
        assert http.request("DELETE", "/workers/one").status_code == 403
        told = http.post("/workers", json=new, headers=ADMIN)
        assert (told.status_code, told.json()["url"]) == (201, two.url)
        for bad, field in (
            (new, "name"),
            ({"url": two.url}, "url"),
            ({"url": "ftp://x"}, "url"),
            ({"url": "http://x", "weight": 0}, "weight"),
            ({"url": "http://x", "tags": [3]}, "tags[0]"),
            ({"url": "http://x", "colour": "red"}, "colour"),
            ({}, "url"),
            ([], None),
        ):
            answer = http.post("/workers", json=bad, headers=ADMIN)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field), bad
        router.wait_for("two")
        answer = http.request("DELETE", "/workers/one", headers=ADMIN)
        assert answer.json() == {"name": "one", "state": "gone", "calls_left": 0}
        assert http.request("DELETE", "/workers/one", headers=ADMIN).status_code == 404
        assert [w["name"] for w in http.get("/workers").json()["workers"]] == ["two"]
        found = http.post(COMPLETIONS, json=completion())
        assert found.headers["x-anychip-worker"] == "two"


def test_a_router_does_not_pass_calls_on_to_itself():
    with scripted("one") as (one,), routing([one]) as router, router.http() as http:
        assert http.post("/workers", json={"name": "me", "url": router.url}).status_code == 201
        wait_until(lambda: "among its own workers" in (router.state("me")["reason"] or ""))
        assert router.state("me")["state"] == "starting"
        http.post(COMPLETIONS, json=completion(), headers={"via": "1.0 a-proxy"})
        shown = one.calls[-1][2]["via"]
        assert router.desk.id in shown
        for path in (COMPLETIONS, "/v1/responses/x/cancel", "/flush_cache", "/abort_request"):
            told = http.post(path, json=completion(), headers={"via": shown})
            assert (told.status_code, told.json()["error"]["code"]) == (508, "router_loop"), path
        http.headers["via"] = f"1.1 {router.desk.id[:-1]}x"
        assert http.post(COMPLETIONS, json=completion()).status_code == 200, "another router's"


def test_a_response_is_asked_of_the_worker_that_keeps_it():
    with scripted("one", "two") as pair, routing(pair) as router, router.http() as http:
        made = [http.post(RESPONSES, json={"model": "m", "input": "hi"}) for _ in range(4)]
        for answer in made:
            name, worker = answer.json()["id"], answer.headers["x-anychip-worker"]
            again = http.get(f"{RESPONSES}/{name}")
            assert (again.json(), again.headers["x-anychip-worker"]) == (answer.json(), worker)
            more = {"model": "m", "input": "more", "previous_response_id": name}
            assert http.post(RESPONSES, json=more).headers["x-anychip-worker"] == worker
            assert http.post(f"{RESPONSES}/{name}/cancel").headers["x-anychip-worker"] == worker
        known = made[0].json()["id"]
        assert http.delete(f"{RESPONSES}/{known}").status_code == 200
        for asked in (known, "resp_none"):
            answer = http.get(f"{RESPONSES}/{asked}")
            assert answer.status_code == 404 and asked in answer.json()["error"]["message"]
        kept = next(one for one in made if one.headers["x-anychip-worker"] == "two").json()["id"]
        assert http.delete("/workers/two").status_code == 200
        assert http.post("/workers", json={"name": "new", "url": pair[1].url}).status_code == 201
        router.wait_for("new")
        found = http.get(f"{RESPONSES}/{kept}")
        assert found.headers["x-anychip-worker"] == "new", "the same server by another name"
        pair[1].responses["resp_before"] = {"id": "resp_before"}
        found = http.get(f"{RESPONSES}/resp_before")
        assert found.headers["x-anychip-worker"] == "new", "a router that has forgotten asks"


def test_an_abort_goes_to_the_worker_that_runs_the_call():
    with scripted("one", "two") as pair, routing(pair, admin_api_key="boss") as router:
        call = completion("hold", stream=True, rid="mine")
        with router.http() as http, http.stream("POST", COMPLETIONS, json=call) as answer:
            lines = answer.iter_lines()
            next(lines)
            runs = next(w for w in pair if w.name == answer.headers["x-anychip-worker"])
            other = next(w for w in pair if w is not runs)
            runs.running = other.running = "mine"
            with router.http() as more:
                told = more.post("/abort_request", json={"rid": "mine"}).json()
                assert (told["aborted"], list(told["workers"])) == (1, [runs.name])
                by_id = more.post("/abort_request", json={"rid": f"cmpl-{runs.name}"})
                assert by_id.status_code == 404 and "/abort_request" in runs.paths()
                assert "/abort_request" not in other.paths(), "it runs nothing of that name"
                other.running = "elsewhere"
                told = more.post("/abort_request", json={"rid": "elsewhere"}).json()
                assert told["aborted"] == 1, "an unknown id is asked of all"
                assert more.post("/abort_request", json={"rid": "none"}).status_code == 404
                assert more.post("/abort_request", json={}).status_code == 400
                every = {"abort_all": True}
                assert more.post("/abort_request", json=every).status_code == 403
                told = more.post("/abort_request", json=every, headers=ADMIN).json()
                assert (told["aborted"], set(told["workers"])) == (2, {"one", "two"})
            runs.gate.set()


def test_an_abort_that_workers_refuse_is_not_told_as_a_call_that_does_not_run():
    with scripted("one", "two") as pair, routing(pair) as router, router.http() as http:
        pair[1].busy = True
        told = http.post("/abort_request", json={"rid": "x"})
        assert told.status_code == 401
        assert told.json()["error"]["message"] == "worker 'two' says 401: whose key is that?"
        every = http.post("/abort_request", json={"abort_all": True})
        assert (every.status_code, every.json()["aborted"]) == (401, 1)


def test_every_worker_flushes_and_each_answer_is_told():
    with scripted("one", "two") as pair, routing(pair) as router, router.http() as http:
        assert http.post("/flush_cache").json()["success"] is True
        pair[1].busy = True
        told = http.post("/flush_cache")
        assert (told.status_code, told.json()["success"]) == (400, False)
        assert told.json()["workers"]["two"] == {"status": 400, "answer": {"success": False}}
        assert told.json()["workers"]["one"]["status"] == 200 and told.json()["not_asked"] == {}
        pair[0].ready_status = 503
        router.wait_for("one", state="sick")
        assert http.post("/flush_cache").json()["not_asked"] == {"one": "sick"}


def test_all_calls_are_aborted_at_a_worker_that_is_being_removed_too():
    with scripted("one") as (one,), routing([one]) as router, router.http() as http:
        call = completion("hold", stream=True)
        with http.stream("POST", COMPLETIONS, json=call) as answer, router.http() as more:
            lines = answer.iter_lines()
            next(lines)
            removing = threading.Thread(target=more.delete, args=("/workers/one",))
            removing.start()
            router.wait_for("one", state="draining")
            with router.http() as third:
                told = third.post("/abort_request", json={"abort_all": True}).json()
                assert list(told["workers"]) == ["one"]
                new = third.post("/workers", json={"url": one.url}).json()["error"]["message"]
                assert "draining; wait until it is gone" in new
            one.gate.set()
            list(lines)
            removing.join(60)


def test_a_change_that_a_look_and_a_call_find_together_is_told_once(caplog):
    caplog.set_level("INFO")
    with scripted("one") as (one,), routing([one]) as router:
        one.ready_status = 503
        router.wait_for("one", state="sick")

        async def tell() -> None:
            router.desk.fleet._tell(router.desk.fleet.workers["one"])

        asyncio.run_coroutine_threadsafe(tell(), router.loop).result(30)
        assert caplog.text.count("worker one: sick") == 1


def test_a_rule_says_who_may_answer_and_what_it_names_when_they_are_away():
    rules = {"rule": ("max_tokens>100: @large",), "worker_tags": {"big": "large"}}
    with scripted("small", "big") as (small, big):
        with routing([small, big], **rules) as router, router.http() as http:
            asked = [http.post(COMPLETIONS, json=completion(max_tokens=101)) for _ in range(3)]
            assert {one.headers["x-anychip-worker"] for one in asked} == {"big"}
            big.ready_status = 503
            router.wait_for("big", state="sick")
            told = http.post(COMPLETIONS, json=completion(max_tokens=101))
            assert told.status_code == 503
            assert "'max_tokens>100: @large'" in told.json()["error"]["message"]
            assert http.post(COMPLETIONS, json=completion()).status_code == 200
            big.ready_status = 200
        with routing([small, big], **rules, rule_fallback="any") as router, router.http() as http:
            big.ready_status = 503
            router.wait_for("big", state="sick")
            told = http.post(COMPLETIONS, json=completion(max_tokens=101))
            assert told.headers["x-anychip-worker"] == "small"
            page = http.get("/metrics").text
            assert 'rule_fallbacks_total{rule="max_tokens>100: @large"} 1.0' in page


def test_keys_open_the_router_and_workers_get_theirs(tmp_path):
    key = tmp_path / "key"
    key.write_text("for-workers\n")
    key.chmod(0o600)
    with (
        scripted("one") as (one,),
        routing([one], api_key="mine", wait=False, worker_api_key_file=str(key)) as router,
        httpx.Client(base_url=router.url, timeout=60) as http,
    ):
        wait_until(lambda: http.get("/ready").status_code == 200)
        assert http.post(COMPLETIONS, json=completion()).status_code == 401
        for name in ("authorization", "x-api-key"):
            value = "Bearer mine" if name == "authorization" else "mine"
            assert http.post(COMPLETIONS, json=completion(), headers={name: value}).is_success
            seen = one.calls[-1][2]
            assert seen["authorization"] == "Bearer for-workers" and "x-api-key" not in seen


def test_without_a_key_of_its_own_the_clients_is_passed_on():
    with scripted("one") as (one,), routing([one]) as router, router.http() as http:
        http.post(COMPLETIONS, json=completion(), headers={"authorization": "Bearer theirs"})
        assert one.calls[-1][2]["authorization"] == "Bearer theirs"


def test_the_end_waits_for_what_runs_and_takes_nothing_new():
    with scripted("one") as (one,), routing([one], shutdown_timeout=60) as router:
        call = completion("hold", stream=True)
        with router.http() as http, http.stream("POST", COMPLETIONS, json=call) as answer:
            lines = (line for line in answer.iter_lines() if line)
            next(lines)
            router.ask_to_stop()
            wait_until(lambda: router.desk.draining)
            with router.http() as more:
                told = more.post(COMPLETIONS, json=completion())
                assert told.json()["error"]["code"] == "shutting_down"
            one.gate.set()
            assert list(lines)[-1] == "data: [DONE]"
        router.thread.join(60)
        assert router.exit_code == 0


def test_a_stream_that_the_end_cuts_is_told_so():
    with scripted("one") as (one,), routing([one], shutdown_timeout=0.01) as router:
        call = completion("hold", stream=True)
        with router.http() as http, http.stream("POST", COMPLETIONS, json=call) as answer:
            lines = answer.iter_lines()
            next(lines)
            router.ask_to_stop()
            last = events_of("\n".join(lines))[-1]
            assert last["error"]["code"] == "shutting_down"
