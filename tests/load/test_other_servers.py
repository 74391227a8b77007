"""What was seen of vLLM, `transformers serve` and llama.cpp, said again by a scripted server."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest
from scripted_server import plain_server

from anychip.__main__ import main
from anychip.bench.load.calls import Call
from anychip.bench.load.client import LoadClient
from anychip.bench.load.prompts import Shape, calls_of
from anychip.bench.load.traces import read_trace
from anychip.bench.others import Reading, diagnose_other, reading
from anychip.bench.proxy.noting import Note
from anychip.record.lines import FORMAT, VERSION, Header, Recorded, Salt

BURST = "Timestamp,Request tokens,Response tokens\n5,4,2\n6,5,3\n"
VLLM = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.95
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 50.0
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:generation_tokens_total{engine="0",model_name="m"} 4.0
"""
SGLANG = (
    'sglang:num_running_reqs{tp_rank="0"} 1.0\nsglang:token_usage{tp_rank="0"} 0.5\n'
    'sglang:token_usage{tp_rank="1"} 0.7\n'
)
LLAMA_CPP = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n"


@pytest.fixture
def plain():
    with plain_server() as server:
        yield server


@pytest.fixture
def burst(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(BURST)
    return path


def replayed(capsys, path, url, *flags: str) -> tuple[int, str]:
    code = main(["replay", str(path), "--url", url, "--speed", "100", *flags])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("how", "flags", "told"),
    [
        ("strict", (), "--free-length"),
        ("texts alone", ("--free-length", "--vocab", "500"), "--prompts text"),
    ],
)
def test_a_refusal_names_the_flag_that_helps(plain, burst, capsys, how, flags, told) -> None:
    code, text = replayed(capsys, burst, plain.url, "--model", how, *flags)
    assert code == 1
    assert told in next(line for line in text.splitlines() if line.startswith("next:"))
    code, text = replayed(capsys, burst, plain.url, "--model", how, "--free-length")
    assert code == 0 and "next:" not in text


def test_a_cache_that_cannot_be_emptied_is_said_by_the_flag(plain, burst, capsys) -> None:
    assert main(["replay", str(burst), "--url", plain.url, "--flush-cache"]) == 2
    error = capsys.readouterr().err
    assert "--flush-cache" in error and "404" in error


def test_usage_may_come_with_the_end_and_the_stream_stop_there(plain) -> None:
    async def ask():
        async with LoadClient(plain.url, "bare end") as client:
            return await client.send(Call(id="a", max_tokens=3, prompt="x"), client.clock(), 0.0)

    answer = asyncio.run(ask())
    assert answer.failure is None and answer.finish == "length" and answer.counted
    assert (answer.prompt_tokens, answer.output_tokens, answer.text) == (4, 3, "0 1 2 ")


def test_a_connection_that_the_server_has_just_closed_costs_no_answer(plain) -> None:
    """llama.cpp's server hangs up on connections that were to be kept."""
    plain.once = True

    async def ask():
        async with LoadClient(plain.url, "sound") as client:
            calls = [Call(id=str(number), max_tokens=2, prompt="x") for number in range(4)]
            return [await client.send(call, client.clock(), 0.0) for call in calls]

    assert [answer.failure for answer in asyncio.run(ask())] == [None] * 4
    assert len(plain.seen) == 4


def test_a_new_connection_that_is_hung_up_on_is_a_failure(plain) -> None:
    async def ask():
        async with LoadClient(plain.url, "hangs up") as client:
            return await client.send(Call(id="a", max_tokens=2, prompt="x"), client.clock(), 0.0)

    assert asyncio.run(ask()).failure.kind == "connect"
    assert len(plain.seen) == 1


def test_the_list_of_models_may_tell_vocabulary_and_context(plain, burst, capsys) -> None:
    """As llama.cpp's does, so that ids need no --vocab."""
    plain.listed = {"id": "sound", "meta": {"n_vocab": 50, "n_ctx": 7}}
    code, text = replayed(capsys, burst, plain.url)
    assert code == 0 and "made up of random tokens" in text
    prompts = [body["prompt"] for _, body, _ in plain.seen]
    assert [len(prompt) for prompt in prompts] == [4, 5] and max(map(max, prompts)) < 50
    assert "1 of 2 requests need more than the server's 7 tokens" in text


def test_of_several_answers_the_first_is_read(plain) -> None:
    async def ask():
        async with LoadClient(plain.url, "several") as client:
            return await client.send(Call(id="a", max_tokens=3, prompt="x"), client.clock(), 0.0)

    answer = asyncio.run(ask())
    assert answer.text == "aaa" and len(answer.gaps) == 2


def test_a_record_has_the_share_of_one_sequence() -> None:
    """vLLM counts all prompts and answers of a call together."""
    asked = {"prompt": ["a b", "c d"], "n": 2, "max_tokens": 4}
    note = Note(1, "/v1/completions", json.dumps(asked).encode(), 0.0)
    note.answers(200, "application/json", "")
    usage = {"prompt_tokens": 6, "completion_tokens": 16}
    choices = [{"index": n, "text": "x", "finish_reason": "length"} for n in range(4)]
    note.piece(json.dumps({"choices": choices, "usage": usage}).encode())
    note.ended()
    line = note.line(0.0, "text", Salt(b"0" * 32))
    assert (line.text, line.response_tokens, line.prompt_tokens) == ("a b", 4, None)


def test_what_was_refused_when_it_was_recorded_is_not_asked_again(tmp_path) -> None:
    head = Header(format=FORMAT, version=VERSION, started=0.0, privacy="text", by="proxy")
    ask = {"at": 0.0, "endpoint": "/v1/completions"}
    lines = [
        Recorded(id=1, at_s=0.0, text="x", error="http 400", **ask),
        Recorded(id=2, at_s=1.0, text="y", params={"n": 3}, **ask),
    ]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (head, *lines)))
    trace = read_trace(path)
    asked = calls_of(trace, Shape())
    assert [call.prompt for call in asked.calls] == ["y"]
    assert "n" not in asked.calls[0].params
    assert "1 requests that the server refused" in " ".join(trace.notes)
    assert "wanted several answers" in " ".join(asked.notes)


def test_a_grammar_that_others_may_leave_out_is_said(plain, tmp_path, capsys) -> None:
    head = Header(format=FORMAT, version=VERSION, started=0.0)
    line = Recorded(
        id=1,
        at=0.0,
        at_s=0.0,
        endpoint="/v1/completions",
        prompt=[1, 2],
        prompt_tokens=2,
        response_tokens=2,
        grammar={"kind": "regex", "text": "[a-z]+"},
    )
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in (head, line)))
    code, text = replayed(capsys, path, plain.url)
    assert code == 0 and "1 requests are held to a grammar" in text
    assert plain.seen[-1][1]["regex"] == "[a-z]+"


def scanned(capsys, url: str) -> dict:
    words = ["--concurrency", "1,2", "--requests-per-level", "2", "--input-tokens", "4"]
    assert main(["scan", "--url", url, *words, "--output-tokens", "3", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_scan_sees_what_another_server_tells(plain, capsys) -> None:
    plain.metrics = VLLM
    found = scanned(capsys, plain.url)
    assert [level["running"] for level in found["levels"]] == [3.0, 3.0]
    assert "no evidence from this server" in " ".join(found["notes"])
    assert all(body["ignore_eos"] for _, body, _ in plain.seen)


def test_a_scan_says_where_answers_end_by_themselves(plain, capsys) -> None:
    plain.listed = {"id": "strict"}
    found = scanned(capsys, plain.url)
    assert "takes no ignore_eos" in " ".join(found["notes"])
    assert found["levels"][0]["running"] is None
    assert found["levels"][0]["figures"]["succeeded"] == 2


def test_diagnose_reads_the_metrics_of_another_server(plain, capsys) -> None:
    plain.metrics = VLLM
    assert main(["diagnose", "--url", plain.url, "--seconds", "0.5", "--json"]) == 1
    out, err = capsys.readouterr()
    found = {one["name"]: one for one in json.loads(out)}
    assert "not one of ours" in err
    assert found["queue"]["verdict"] == "found" and "2.0 wait" in found["queue"]["evidence"]
    assert found["KV memory"]["verdict"] == "found" and "95%" in found["KV memory"]["evidence"]
    assert "25% of 200" in found["prefix cache"]["evidence"]
    assert found["lock contention"]["verdict"] == "unknown"


@pytest.mark.parametrize(("page", "told"), [("", "404"), ("up 1\n", "no series")])
def test_diagnose_says_where_nothing_is_told(plain, capsys, page: str, told: str) -> None:
    plain.metrics = page
    assert main(["diagnose", "--url", plain.url, "--seconds", "0.5"]) == 2
    error = capsys.readouterr().err
    assert told in error and "anychip scan" in error


def test_figures_that_a_server_does_not_have_are_unknown() -> None:
    found = reading(LLAMA_CPP)
    assert (found.running, found.waiting, found.used, found.asked) == (1.0, 0.0, None, None)
    verdicts = {one.name: one.verdict for one in diagnose_other([found, found])}
    assert verdicts["queue"] == "fine"
    assert verdicts["KV memory"] == verdicts["prefix cache"] == "unknown"
    counted = reading("llamacpp:prompt_tokens_total 30\nllamacpp:prompt_tokens_cached_total 10\n")
    hits = diagnose_other([counted, counted])[2]
    assert hits.evidence.startswith("25% of 40")
    assert reading(SGLANG).used == pytest.approx(0.6)
    assert not reading("<html>").tells and not Reading().tells
