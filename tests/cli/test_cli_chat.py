"""`anychip chat` at a terminal and in a pipe, against a server and with an Engine of its own."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from anychip.model.tiny import write_tiny
from cli.typed import Typed
from served import ENVIRONMENT, alive, children, config_for, model_folder, running, wait_until

FACE = "🙂"  # what the scripted model begins an answer with, then the alphabet


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = model_folder(tmp_path_factory.mktemp("model"))
    options = {"step_s": "0.005"}
    with running(config_for(folder, chip_option=options, api_key="sesame")) as server:
        yield server


def command(server, *words: str) -> list[str]:
    return ["-m", "anychip", "chat", "--url", server.url, *words]


def piped(words: list[str], text: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**ENVIRONMENT, "ANYCHIP_API_KEY": "sesame", "LC_ALL": "C.UTF-8", **environ},
    )


@pytest.fixture
def typed(server, tmp_path):
    with Typed(*command(server), HOME=str(tmp_path), ANYCHIP_API_KEY="sesame") as typed:
        typed.until("tiny at http://127.0.0.1")
        typed.until("> ")
        yield typed


def test_a_conversation_at_a_terminal(typed, server, tmp_path):
    typed.type("/params max_tokens=6\n")
    typed.until("max_tokens=6")
    typed.type("hello\n")
    assert f"{FACE}ab" in typed.until("(6 tokens, ")
    shown = typed.until("cut at max_tokens or the context's end)")
    assert "tokens/s, first after " in shown and "prompt 23 tokens, " in shown
    typed.until("> ")
    typed.type('"""\none\n\n  two\n"""\n')
    typed.until("(6 tokens, ")
    typed.until("> ")
    typed.type("three \\\nfour\n")
    typed.until("(6 tokens, ")
    typed.type("/system be brief\n")
    typed.until("system message set")
    typed.type("//not a command\n")
    typed.until("(6 tokens, ")
    file = tmp_path / "chat.json"
    typed.type(f"/save {file}\n")
    typed.until("saved 9 messages")
    typed.type("/nothing\n")
    typed.until("there is no command /nothing; the nearest is")
    typed.type("/save /dev/null\n")
    typed.until("is there already")
    typed.until("> ")  # an end that is typed while nobody reads is lost
    typed.type("\x04")
    assert typed.end() == 0
    document = json.loads(file.read_text())
    assert [m["content"] for m in document["messages"] if m["role"] != "assistant"] == [
        "be brief",
        "hello",
        "one\n\n  two",
        "three \nfour",
        "/not a command",
    ]
    assert {m["content"] for m in document["messages"] if m["role"] == "assistant"} == {f"{FACE}ab"}
    assert document["params"] == {"max_tokens": 6}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["chat.json"]  # what was typed is in no file


def test_ctrl_c_stops_the_answer_and_not_the_program(typed, server):
    typed.type("hello\n")
    typed.until(f"{FACE}abcdef")
    typed.type("\x03")
    assert "stopped)" in typed.until("stopped)")
    wait_until(lambda: server.service.client.stats.running == 0)
    typed.until("> ")
    typed.type("\x03")
    typed.until("(Ctrl-D or /exit ends)")
    typed.type("/params max_tokens=5\n/regenerate\n")
    typed.until("(5 tokens")
    typed.type("/reset\n/regenerate\n")
    typed.until("a new conversation")
    typed.until("there is no message yet")
    typed.type("/exit\n")
    assert typed.end() == 0


def test_what_is_typed_is_kept_where_that_is_asked_for(server, tmp_path):
    file = tmp_path / "history"
    file.write_text("from before\n")
    words = command(server, "--history", str(file), "--params", "max_tokens=5")
    with Typed(*words, ANYCHIP_API_KEY="sesame", NO_COLOR="1") as typed:
        typed.until("> ")
        typed.type("\x1b[A\n")  # the key that brings the line before
        assert "from before" in typed.until("(5 tokens")
        assert "\x1b[2m" not in typed.until("> ")
        typed.type("\x04")
        assert typed.end() == 0
    assert file.read_text().splitlines()[0] == "from before"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_figures_are_dim_at_a_terminal(typed):
    typed.type("/help\n")
    assert "\x1b[2m/regenerate" in typed.until("answer the last message again")


def test_each_line_of_a_pipe_is_a_message(server):
    lines = "hello\n\n/params max_tokens=5\nagain\\\n"
    ended = piped(command(server, "--params", "max_tokens=4"), lines)
    assert (ended.returncode, ended.stdout) == (0, f"{FACE}\n{FACE}a\n")
    assert "\x1b" not in ended.stdout + ended.stderr
    assert ended.stderr.count("first after") == 2 and "(5 tokens, " in ended.stderr


def test_the_first_error_ends_a_pipe(server):
    ended = piped(command(server), "/params top_p=7\nhello\nhello\n")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.splitlines()[-1].startswith("anychip: error: http://127.0.0.1")
    assert "HTTP 400: top_p is 7" in ended.stderr and "Traceback" not in ended.stderr
    ended = piped(command(server), "x" * 300 + "\n")
    assert ended.returncode == 1 and "; /reset begins anew" in ended.stderr


@pytest.mark.parametrize(
    "words, code, text",
    [
        (["--url", "ftp://x"], 2, "'ftp://x' is no address such as"),
        (["--url", "http://u:p@x"], 2, "a key goes into ANYCHIP_API_KEY"),
        (["--url", "http://x", "--backend", "fake"], 2, "--backend: the model runs at --url"),
        (["--url", "http://x", "--params", "stream=1"], 2, "stream is set by the chat itself"),
        (["--api-key", "k", "--model", "M"], 2, "there is no server to send it to"),
        (["--url", "http://127.0.0.1:9"], 1, "http://127.0.0.1:9/v1: "),
        (["--model", "/nowhere"], 1, "/nowhere"),
    ],
)
def test_wrong_words_are_told_in_one_line(words, code, text):
    ended = piped(["-m", "anychip", "chat", *words], "hello\n")
    assert (ended.returncode, ended.stdout) == (code, "")
    assert text in ended.stderr.splitlines()[-1] and "Traceback" not in ended.stderr


def test_a_wrong_key_is_told(server):
    ended = piped(command(server, "--model", "tiny"), "hello\n", ANYCHIP_API_KEY="wrong")
    assert ended.returncode == 1 and "put the key into ANYCHIP_API_KEY" in ended.stderr


def test_a_reader_that_leaves_ends_it(server):
    line = f"printf 'a\\nb\\n' | {sys.executable} {' '.join(command(server))} | true; echo $?"
    ended = subprocess.run(
        ["bash", "-c", line.replace("; echo", "; echo ${PIPESTATUS[1]}")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**ENVIRONMENT, "ANYCHIP_API_KEY": "sesame"},
    )
    assert ended.stdout.split()[0] == str(128 + signal.SIGPIPE)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    path = write_tiny(tmp_path_factory.mktemp("tiny"))
    return ["-m", "anychip", "chat", "--model-path", str(path), "--backend", "fake"]


def test_an_engine_of_its_own_in_a_pipe(local):
    ended = piped([*local, "--params", "max_tokens=8"], "hello\n/reset\nhello\n/params\n")
    text = ended.stdout[: len(ended.stdout) // 2]
    assert ended.returncode == 0 and text.strip()
    assert ended.stdout == text * 2  # greedy, unless told otherwise
    assert ended.stderr.endswith("temperature=0 max_tokens=8\n")
    assert "\x1b" not in ended.stdout + ended.stderr


def test_an_engine_of_its_own_at_a_terminal(local):
    with Typed(*local, "--disable-jump-forward", "--params", "regex=(zq){200}") as typed:
        typed.until("/help lists the commands")
        typed.until("> ")
        mine = children(typed.process.pid)
        assert len(mine) == 2
        typed.type("hello\n")
        typed.until("zqzq")
        typed.type("\x03")
        typed.until("stopped)")
        typed.type("/params max_tokens=3\nhello\n")
        typed.until("(3 tokens")
        typed.type("/exit\n")
        assert typed.end() == 0
        wait_until(lambda: not any(alive(child) for child in mine))
