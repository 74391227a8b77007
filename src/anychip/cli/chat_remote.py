"""`anychip chat --url`: answers of any server that speaks OpenAI's chat API."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import msgspec

from anychip import wrong_scheme
from anychip.address import server_url
from anychip.bench.load.events import PromptDetails, Usage, phrase
from anychip.cli.chat_answers import ChatError, Messages, Said, refused
from anychip.http.listening import is_loopback

CONNECT_S, READ_S = 10.0, 600.0
"""How long a server may take to accept, and between two pieces: a prompt may be long."""
_MAX_LINE = 1 << 24
_MAX_BODY = 1 << 20
_SHOWN = 200


class _Delta(msgspec.Struct):
    """reasoning_content and reasoning: two names of the same."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: Any = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_event = msgspec.json.Decoder(_Event)


class Remote:
    """A server. url: its address, with or without /v1. model: None for the first that it lists.

    Raises ConfigError for what is no such address, ChatError where nobody answers there.
    """

    def __init__(self, url: str, key: str | None, model: str | None) -> None:
        self._url, self._key = server_url(url), key
        path = self._url.path.rstrip("/")
        self._base = path if path.endswith("/v1") else path + "/v1"
        self.model = model or self._first_model()
        self.title = f"{self.model} at {url}"

    @property
    def shows_key(self) -> bool:
        """Whether a key would travel where others may read it."""
        far = not is_loopback(self._url.hostname or "")
        return self._key is not None and self._url.scheme == "http" and far

    def answer(self, messages: Messages, params: dict[str, Any]) -> Generator[Said, None, None]:
        """Raises ChatError."""
        body = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **params,
        }
        with closing(self._connection()) as connection:
            try:
                yield from _said(self._ask(connection, "POST", "/chat/completions", body))
            except (OSError, http.client.HTTPException) as error:
                raise self._failed(error) from error

    def _first_model(self) -> str:
        with closing(self._connection()) as connection:
            try:
                body = self._ask(connection, "GET", "/models", None).read(_MAX_BODY)
            except (OSError, http.client.HTTPException) as error:
                raise self._failed(error) from error
        try:
            return msgspec.json.decode(body, type=_Models).data[0].id
        except (msgspec.MsgspecError, IndexError) as error:
            raise ChatError(f"{self._place} lists no model; name one with --model") from error

    @property
    def _place(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}{self._base}"

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=context)

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> http.client.HTTPResponse:
        """The answer of a request, where it is a good one. Raises ChatError."""
        connection.connect()
        connection.sock.settimeout(READ_S)
        headers: dict[str, str | bytes] = {"Accept": "text/event-stream, application/json"}
        if self._key is not None:
            headers["Authorization"] = b"Bearer " + self._key.encode()
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = _encode(body)
        connection.request(method, self._base + path, data, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise _refusal(response, self._place)
        return response

    def _failed(self, error: Exception) -> ChatError:
        return ChatError(f"{self._place}: {wrong_scheme.told(self._url, error)}")


def _encode(body: object) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise ChatError(f"the message is not Unicode text: {error}") from error


def _refusal(response: http.client.HTTPResponse, place: str) -> ChatError:
    """Why it did not answer, in its own words where it has some."""
    body = response.read(_MAX_BODY)
    told, code = _error_of(body)
    if told is None and 300 <= response.status < 400:
        told = f"it points to {response.headers.get('Location', 'another place')}; give that --url"
    if told is None:
        told = body[:_SHOWN].decode(errors="replace").strip()
        told = told or f"{phrase(response.status)}, and no word why"
    hint = "; put the key into ANYCHIP_API_KEY" if response.status == 401 else ""
    return refused(f"{place}: HTTP {response.status}: {told}{hint}", code)


def _error_of(body: bytes) -> tuple[str | None, object]:
    """The message and the code of an error answer, where it has them."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None, None
    error = (found.get("error") or found.get("detail")) if isinstance(found, dict) else None
    return _message(error), error.get("code") if isinstance(error, dict) else None


def _message(error: object) -> str | None:
    told = error.get("message") if isinstance(error, dict) else error
    return told if isinstance(told, str) else None


def _said(response: http.client.HTTPResponse) -> Iterator[Said]:
    """What each event of the stream tells. ChatError for one that breaks off."""
    finished = False
    for data in _data(response):
        if data == b"[DONE]":
            return
        try:
            event = _event.decode(data)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ChatError(f"the server sent what is no event of a chat: {error}") from error
        if event.error is not None:
            raise ChatError(f"the server failed: {_message(event.error) or event.error}")
        said = _of(event)
        finished = finished or said.finish is not None
        yield said
    if not finished:
        raise ChatError("the server ended the stream in the middle of the answer")


def _data(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The data of each server-sent event; ours and OpenAI's have one line."""
    while line := response.readline(_MAX_LINE):
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _of(event: _Event) -> Said:
    usage = event.usage or Usage()
    details = usage.prompt_tokens_details or PromptDetails()
    choice = event.choices[0] if event.choices else _Choice()
    delta = choice.delta or _Delta()
    return Said(
        text=delta.content or "",
        thought=delta.reasoning_content or delta.reasoning or "",
        finish=choice.finish_reason,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=details.cached_tokens,
    )
