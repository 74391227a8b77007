"""`anychip replay` against a plain server that is not ours, and against ours."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from scripted_server import plain_server

from anychip.__main__ import main
from anychip.bench.load.replay import Watcher, Wish
from anychip.bench.load.report import markdown
from anychip.cli.replay import _interruptible
from scripted_engine import VOCAB
from served import ENVIRONMENT, config_for, model_folder, running, wait_until

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:03.{n:02}00000,{n + 1},{1 + n % 3}\n" for n in range(20)
)


@pytest.fixture
def azure(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(AZURE)
    return path


@pytest.fixture(scope="module")
def plain():
    with plain_server() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ours(folder, tmp_path_factory):
    """A server that records itself and answers exactly; with the record's place."""
    record = tmp_path_factory.mktemp("record") / "record.jsonl"
    config = config_for(
        folder, allow_exact_replay=True, record=str(record), chip_option={"polite": "1"}
    )
    with running(config) as server:
        yield server, record


def ask(capsys, *words: object) -> tuple[int, dict, str]:
    code = main(["replay", *map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def test_a_plain_server_gets_words_at_their_times(plain, azure, capsys, tmp_path):
    before, out = len(plain.seen), tmp_path / "out"
    code, told, err = ask(
        capsys, azure, "--url", plain.url, "--speed", 4, "--output", out, "--slo-ttft", 60000
    )
    assert code == 0, err
    figures = told["figures"]
    assert (figures["loop"], figures["requests"], figures["succeeded"]) == ("open", 20, 20)
    assert figures["errors"] == {} and figures["goodput"]["share"][0] == 1.0
    assert told["kind"] == "azure" and not told["served"]["ours"]
    bodies = sorted((b for _, b, _ in plain.seen[before:]), key=lambda b: len(b["prompt"]))
    assert {len(b["prompt"].split()) for b in bodies} == set(range(1, 21))
    assert all(b["ignore_eos"] for b in bodies)
    assert "20 prompts are made up of random words" in err and "20 requests; about" in err
    assert {p.name for p in out.iterdir()} == {
        "replay.json", "replay.md", "answers.jsonl", "replay.png",
    }  # fmt: skip
    page = (out / "replay.md").read_text()
    assert "open loop: 0.19 s of arrivals at speed 4" in page
    assert "scaling: lengths as they are" in page and "| TTFT |" in page
    assert (out / "replay.png").read_bytes().startswith(b"\x89PNG")
    answers = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    due = [answer["scheduled_s"] for answer in answers]
    assert due == pytest.approx([n / 400 for n in range(20)])
    assert all(answer["sent_s"] >= answer["scheduled_s"] for answer in answers)


def test_a_closed_loop_says_everywhere_that_it_is_one(plain, azure, capsys, tmp_path):
    words = [str(azure), "--url", plain.url, "--closed-loop", "3", "--output", str(tmp_path / "o")]
    assert main(["replay", *words]) == 0
    assert "CLOSED LOOP of 3 callers" in capsys.readouterr().out
    assert "CLOSED LOOP of 3 callers" in (tmp_path / "o" / "replay.md").read_text()
    told = json.loads((tmp_path / "o" / "replay.json").read_text())
    assert (told["figures"]["loop"], told["figures"]["concurrency"]) == ("closed", 3)


def test_failures_are_counted_by_kind_and_nothing_answered_is_exit_code_1(plain, azure, capsys):
    code, told, _ = ask(capsys, azure, "--url", plain.url, "--model", "busy", "--requests", 4)
    assert code == 1
    assert told["figures"]["errors"] == {"busy": 4}
    assert told["figures"]["error_examples"]["busy"].endswith("HTTP 503: it busy")
    assert told["figures"]["ttft"] is None
    code, told, _ = ask(capsys, azure, "--url", plain.url, "--model", "mute", "--limit", 1)
    example = told["figures"]["error_examples"]["refused"]
    assert code == 1 and example.endswith("HTTP 404: Not Found, and no word why")


def test_what_was_recorded_is_answered_again_token_by_token(ours, folder, capsys, tmp_path):
    server, record = ours
    with server.http() as client:

        def one(number: int) -> None:
            body = {"prompt": f"prompt {number % 3}", "max_tokens": 3 + number, "seed": number}
            assert client.post("/v1/completions", json=body).status_code == 200

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
        assert client.post("/v1/chat/completions", json=chat).status_code == 200
    server.service.recorder.close()
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(record.read_bytes())
    # Other answers than the model gives: with --exact they are given all the same.
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    for line in lines[1:]:
        line["response"] = [97 + (token * 7 + n) % 26 for n, token in enumerate(line["response"])]
    kept.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    code, told, err = ask(capsys, kept, "--url", server.url, "--exact", "--speed", 10)
    assert code == 0, err
    assert told["as_recorded"] == told["figures"]["requests"] == 9
    assert told["served"]["ours"] and told["served"]["vocab"] == VOCAB
    code, told, err = ask(capsys, kept, "--url", server.url, "--speed", 10)
    assert code == 0 and told["figures"]["short"] == 0 and told["as_recorded"] is None
    lengths = sum(line["response_tokens"] for line in lines[1:])
    assert told["figures"]["output_tokens"] == lengths


def test_blocks_that_are_shared_are_found_in_the_cache(ours, capsys, tmp_path):
    server, _ = ours
    path, names = (
        tmp_path / "blocks.jsonl",
        ("timestamp", "input_length", "output_length", "hash_ids"),
    )
    calls = [(200 * n, 1034, 2, [1, 2, 10 + n]) for n in range(6)]
    path.write_text(
        "".join(json.dumps(dict(zip(names, call, strict=True))) + "\n" for call in calls)
    )
    code, told, err = ask(
        capsys, path, "--url", server.url, "--scale-input", 0.125, "--closed-loop", 1
    )
    assert code == 0, err
    first = told["figures"]["hit_rate"][0]
    words = (path, "--url", server.url, "--scale-input", 0.125, "--closed-loop", 1)
    code, told, err = ask(capsys, *words)
    assert code == 0 and told["figures"]["hit_rate"][0] > 0.95 > first
    code, told, err = ask(capsys, *words, "--flush-cache")
    assert code == 0 and "prefix cache was emptied first" in err
    assert told["figures"]["hit_rate"][0] == first
    assert told["best_hit_rate"] > 0.7
    assert told["figures"]["hit_rate"][0] == pytest.approx(told["best_hit_rate"], abs=0.02)


def test_a_model_that_is_not_there_is_refused_before_the_load(plain, azure, capsys):
    before = len(plain.seen)
    assert main(["replay", str(azure), "--url", plain.url, "--model", "nope"]) == 2
    told = capsys.readouterr().err
    assert f"--model: {plain.url}/v1 has no model 'nope'; it has sound, bare end, busy" in told
    assert len(plain.seen) == before and len(told.splitlines()) == 1


def test_a_server_that_lists_no_models_is_loaded_all_the_same_and_that_is_said(azure, capsys):
    with plain_server() as server:
        server.lists = False
        assert main(["replay", str(azure), "--url", server.url]) == 2
        told = capsys.readouterr().err
        assert "lists no model (http" in told and "name one, --model" in told
        code, told, err = ask(
            capsys, azure, "--url", server.url, "--model", "sound", "--requests", 2
        )
    assert code == 0, err
    assert told["notes"][0].startswith("whether the server has sound is not known: http")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--exact"], "--exact: the server is no AnyChip server"),
        (["--flush-cache"], "/flush_cache: HTTP"),
        (["--speed", "2", "--closed-loop", "2"], "the server sets the pace"),
        (["--limit", "0"], "--requests: 0 is under the least value 1"),
        (["--requests", "0"], "--requests: 0 is under the least value 1"),
        (["--scale-input", "0"], "--scale-input: 0.0 is under"),
        (["--prompts", "audio"], "'audio' is not one of ids, text"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(plain, azure, capsys, words, told):
    before = len(plain.seen)
    assert main(["replay", str(azure), "--url", plain.url, *words]) == 2
    assert told in capsys.readouterr().err
    assert len(plain.seen) == before


def test_without_an_address_or_a_server_it_says_so(azure, capsys):
    assert main(["replay", str(azure)]) == 2
    assert "--url: name the server to ask" in capsys.readouterr().err
    assert main(["replay", str(azure), "--url", "http://127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1/v1/models: Cannot connect" in capsys.readouterr().err


def test_ctrl_c_tells_what_was_seen_until_then(plain, tmp_path):
    """The second request is due in two hours."""
    path = tmp_path / "slow.csv"
    path.write_text(AZURE.splitlines()[0] + "\n2023-11-16 18:17:03,4,2\n2023-11-16 20:17:03,4,2\n")

    class Impatient(Watcher):
        def answered(self, answer):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    found = asyncio.run(_interruptible(Wish(file=path, url=plain.url), Impatient()))
    assert (found.figures.interrupted, found.figures.unanswered) == (True, 0)
    assert found.figures.succeeded == 1
    assert "INTERRUPTED with 0 under way" in markdown(found)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("answered", [True, False])
def test_a_load_that_was_interrupted_is_no_success(tmp_path, answered):
    """The second request is sent once the first is answered."""
    path = tmp_path / "long.csv"
    path.write_text(AZURE.splitlines()[0] + "\n" + "2023-11-16 18:17:03,4,2\n" * 20_000)
    words = ["-m", "anychip", "replay", path, "--closed-loop", "1", "--json", "--url"]
    with plain_server() as server:
        if not answered:
            server.gate.clear()  # no answer ends
        process = subprocess.Popen(
            [sys.executable, *words, server.url],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            wait_until(lambda: sum("completions" in str(one) for one in server.seen) > answered)
            process.send_signal(signal.SIGINT)
            told, said = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130
    if answered:
        assert json.loads(told)["figures"]["interrupted"]
    else:
        assert b"no request was answered, 1 were under way" in said


@pytest.mark.parametrize("command", ["replay", "scan"])
def test_a_place_that_takes_no_report_is_told_before_the_load(command, azure, tmp_path, capsys):
    words = [str(azure)] if command == "replay" else []
    words += ["--url", "http://127.0.0.1:1", "--output", str(azure)]
    assert main([command, *words]) == 2
    assert f"--output: cannot write to {azure}: File exists; name a" in capsys.readouterr().err


def test_more_callers_than_a_process_can_be_are_refused(azure, capsys):
    words = [str(azure), "--url", "http://127.0.0.1:1", "--closed-loop", "100000000"]
    assert main(["replay", *words]) == 2
    assert "--closed-loop: 100000000 is over the largest value 4096" in capsys.readouterr().err
