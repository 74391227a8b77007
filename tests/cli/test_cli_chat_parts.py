"""`anychip chat`: parameters, what servers answer, and text that would steer the terminal."""

from __future__ import annotations

import json
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from anychip.cli import chat_terminal
from anychip.cli.chat_answers import ChatError, Said
from anychip.cli.chat_remote import Remote
from anychip.cli.chat_session import Figures, Session, as_value, parameters
from anychip.cli.chat_terminal import Terminal


@pytest.mark.parametrize(
    "text, found",
    [
        ("temperature=0.7 max_tokens=20", {"temperature": 0.7, "max_tokens": 20}),
        ('stop="a b" seed=1', {"stop": "a b", "seed": 1}),
        ('stop=["x", "y"]  user=me', {"stop": ["x", "y"], "user": "me"}),
        ("ignore_eos=true seed=", {"ignore_eos": True, "seed": None}),
        ("", {}),
    ],
)
def test_parameters_are_json_or_words(text, found):
    assert parameters(text) == found


@pytest.mark.parametrize(
    "text, message",
    [
        ("temperature", "'temperature' is not K=V"),
        ("a=1 b", "'b' is not K=V"),
        ("stream=false", "stream is set by the chat itself"),
        ('stop="open', "is not JSON"),
    ],
)
def test_wrong_parameters_are_refused(text, message):
    with pytest.raises(ChatError, match=message):
        parameters(text)
    assert as_value("[1, 2]") == [1, 2] and as_value("[1") == "[1"


class Canned(BaseHTTPRequestHandler):
    """Answers with what the test has put into `answers`, and keeps what was asked."""

    answers: ClassVar[list[tuple[int, str, str]]] = []
    asked: ClassVar[list[tuple[str, dict, str | None]]] = []

    def log_message(self, *words) -> None:
        pass

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self.asked.append((self.path, json.loads(body or b"{}"), self.headers["authorization"]))
        status, kind, text = self.answers.pop(0)
        self.send_response(status)
        self.send_header("content-type", kind)
        if status == 302:
            self.send_header("location", "https://elsewhere")
        self.end_headers()
        self.wfile.write(text.encode())


@contextmanager
def canned(*answers: tuple[int, str, str]):
    Canned.answers, Canned.asked = list(answers), []
    with HTTPServer(("127.0.0.1", 0), Canned) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def events(*bodies: object, done: bool = True) -> tuple[int, str, str]:
    lines = [f"data: {json.dumps(body)}\n\n" for body in bodies]
    return 200, "text/event-stream", ": hello\n\n" + "".join(lines) + "data: [DONE]\n\n" * done


def delta(**fields) -> dict:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
MODELS = (200, "application/json", json.dumps({"data": [{"id": "big"}, {"id": "small"}]}))


def said(remote: Remote) -> list[Said]:
    with closing(remote.answer([{"role": "user", "content": "hi"}], {"seed": 3})) as answer:
        return list(answer)


def test_events_of_other_servers_are_understood():
    thinking = delta(reasoning_content="hm", content=None)
    good = events(delta(role="assistant"), thinking, delta(content="a"), delta(content="b"), END)
    usage = events(delta(content="c"), END, {"choices": [], "usage": USAGE}, done=False)
    with canned(MODELS, good, usage) as url:
        remote = Remote(url + "/", "key", None)
        assert remote.title.startswith("big at http://") and not remote.shows_key
        pieces = said(remote)
        assert "".join(p.text for p in pieces) == "ab"
        assert "".join(p.thought for p in pieces) == "hm"
        last = said(remote)[-1]
        assert (last.prompt_tokens, last.completion_tokens, last.cached_tokens) == (7, 2, 4)
    path, body, key = Canned.asked[-1]
    assert (path, key) == ("/v1/chat/completions", "Bearer key")
    assert body["model"] == "big" and body["seed"] == 3 and body["stream"] is True


@pytest.mark.parametrize(
    "answer, text",
    [
        ((404, "text/html", "<html>no</html>"), "HTTP 404: <html>no</html>"),
        ((500, "text/plain", ""), "HTTP 500: Internal Server Error"),
        ((302, "text/plain", ""), "it points to https://elsewhere; give that --url"),
        ((401, "application/json", '{"error": "no"}'), "HTTP 401: no; put the key into"),
        ((400, "application/json", '{"detail": "bad"}'), "HTTP 400: bad"),
        (events(delta(content="a"), done=False), "ended the stream in the middle"),
        (events({"error": {"message": "lost"}}), "the server failed: lost"),
        ((200, "text/event-stream", "data: {1\n\n"), "what is no event of a chat"),
        ((200, "text/event-stream", 'data: {"choices": 3}\n\n'), "what is no event of a chat"),
    ],
)
def test_what_goes_wrong_at_a_server_is_told(answer, text):
    with canned(answer) as url, pytest.raises(ChatError) as raised:
        said(Remote(url + "/v1", None, "m"))
    assert text in str(raised.value)


def test_a_server_without_models_wants_a_name():
    text = "lists no model; name one with --model"
    empty = (200, "application/json", '{"data": []}')
    with canned(empty) as url, pytest.raises(ChatError, match=text):
        Remote(url, None, None)
    assert Remote("http://example.org", "key", "m").shows_key
    assert not Remote("https://example.org", "key", "m").shows_key


def test_a_models_text_does_not_steer_the_terminal(monkeypatch, capsys):
    terminal = Terminal()
    terminal.write("\x1b[2Jx\n")
    assert capsys.readouterr().out == "\x1b[2Jx\n"  # a pipe gets the text as it is
    monkeypatch.setattr(chat_terminal.sys.stdout, "isatty", lambda: True, raising=False)
    Terminal().write("\x1b[2J\x9b1m\x7f\tü\n")
    assert capsys.readouterr().out == "␛[2J�1m␡\tü\n"


class Scripted:
    title = "scripted"

    def __init__(self, *answers) -> None:
        self.answers, self.asked = list(answers), []

    def answer(self, messages, params):
        self.asked.append([m["content"] for m in messages])
        for piece in self.answers.pop(0):
            if isinstance(piece, BaseException):
                raise piece
            yield Said(text=piece)


class Screen:
    interactive = True

    def __init__(self, *lines) -> None:
        self.lines, self.shown = [*lines, None], ""

    def read(self):
        return self.lines.pop(0)

    def write(self, text) -> None:
        self.shown += text

    note = aside = write


def test_what_failed_is_not_part_of_the_conversation():
    source = Scripted("ab", ["c", ChatError("lost")], ["d", KeyboardInterrupt()], "e", "f")
    source.answers[3] = [KeyboardInterrupt()]
    screen = Screen("1", "2", "3", "4", "/regenerate")
    session = Session(source, screen, "S", {})
    session.run()
    assert source.asked == [
        ["S", "1"],
        ["S", "1", "ab", "2"],
        ["S", "1", "ab", "3"],
        ["S", "1", "ab", "3", "d", "4"],
        ["S", "1", "ab", "3"],
    ]
    assert [m["content"] for m in session.messages] == ["1", "ab", "3", "f"]
    assert "error: lost" in screen.shown and screen.shown.count("stopped") == 2


def test_without_counts_pieces_are_told():
    figures = Figures()
    for text in "abc":
        figures.take(Said(text=text))
    assert figures.told.startswith("(3 pieces") and "tokens" not in figures.told
    figures.take(Said(finish="length", completion_tokens=9, prompt_tokens=4, cached_tokens=2))
    assert "9 tokens" in figures.told and "prompt 4 tokens, 2 of them cached" in figures.told
    assert "cut at max_tokens" in figures.told
