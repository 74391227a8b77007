"""A plain OpenAI-compatible server in a thread, none of ours: what it answers is told by the call.

The model's name says how it behaves; see BEHAVIOURS. `seen` keeps the calls and their headers.
"""

from __future__ import annotations

import gzip
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BEHAVIOURS = {
    "sound", "busy", "refuses", "fails", "cuts", "error event", "whole", "no usage", "hangs up",
    "nonsense", "packed", "mute", "strict", "texts alone", "bare end", "several", "torn stream",
    "torn body",
}  # fmt: skip


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.seen: list[tuple[str, dict, dict]] = []
        self.left = 0  # clients that were gone before their answer was whole
        self.listed: dict = {"id": "sound"}  # the model that /v1/models tells of
        self.once = False  # a second POST of a connection is hung up on, unread
        self.metrics = ""  # of /metrics; none where it is empty
        self.gate = threading.Event()  # answers wait for it after their first piece
        self.gate.set()
        self.ended = False
        self.lists = True  # whether it has /v1/models
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        """Nobody listens there any more, nor on a connection that is open."""
        self.ended = True
        self.shutdown()
        self.server_close()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    posts = 0  # of this connection
    server: Server

    def do_GET(self) -> None:
        if self.server.ended:
            self.close_connection = True
        elif self.path == "/v1/models" and self.server.lists:
            others = ({"id": how} for how in sorted(BEHAVIOURS - {self.server.listed["id"]}))
            self._json(200, {"data": [self.server.listed, *others]})
        elif self.path == "/metrics" and self.server.metrics:
            self._send(200, self.server.metrics.encode(), {"Content-Type": "text/plain"})
        else:
            self._json(404, {"error": {"message": f"no {self.path} here"}})

    def do_POST(self) -> None:
        if self.server.once and self.posts:
            self.close_connection = True
            return
        self.posts += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.ended:
            self.close_connection = True
            return
        if not self.path.startswith("/v1/"):
            self._json(404, {"error": {"message": f"no {self.path} here"}})
            return
        self.server.seen.append((self.path, body, dict(self.headers)))
        how = body["model"]
        if self._refuses(how, body):
            return
        if how == "hangs up":
            self.close_connection = True
        elif how == "packed":
            self._json(200, {"choices": [{"text": "packed", "finish_reason": "stop"}]}, packed=True)
        elif how == "torn body":
            self._send(200, b'{"choices": [', {"Content-Type": "application/json"}, more=100)
        elif how == "whole":
            self._json(200, {"choices": [{"text": "a", "finish_reason": "stop"}]})
        else:
            try:
                self._stream(body, how)
            except (BrokenPipeError, ConnectionResetError):
                self.server.left += 1
                self.close_connection = True

    def _refuses(self, how: str, body: dict) -> bool:
        if how == "mute":
            self._send(404, b"", {})
        elif how in ("busy", "refuses", "fails"):
            status = {"busy": 503, "refuses": 400, "fails": 500}[how]
            self._json(status, {"error": {"message": f"it {how}"}})
        elif how == "strict" and "ignore_eos" in body:  # as `transformers serve` refuses it
            self._json(422, {"detail": "Unexpected fields in the request: {'ignore_eos'}"})
        elif how == "texts alone" and not isinstance(body.get("prompt", ""), str):
            self._json(400, {"detail": "prompt must be a string."})
        else:
            return False
        return True

    def _stream(self, body: dict, how: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(events(body, how, "chat" in self.path)):
            last = how == "bare end" and '"usage"' in event
            raw = b"data: " + event.encode() + (b"" if last else b"\n\n")
            self._chunk(raw[:9])  # events are cut anywhere by a network
            self._chunk(raw[9:])
            if number == 0:
                self.server.gate.wait(30)
            if number == 1 and how == "torn stream":
                self._chunk(b"data: {torn")
                self.close_connection = True
                return
        self._chunk(b"")

    def _json(self, status: int, body: dict, packed: bool = False) -> None:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if packed:
            data, headers = gzip.compress(data), {**headers, "Content-Encoding": "gzip"}
        self._send(status, data, headers)

    def _send(self, status: int, data: bytes, headers: dict[str, str], more: int = 0) -> None:
        """more: bytes that are promised behind the data and do not come."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) + more))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = self.close_connection or bool(more)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def events(body: dict, how: str, chat: bool):
    if how == "bare end":
        yield from bare_events(body)
        return
    for number in range(body["max_tokens"]):
        if number == 1 and how == "cuts":
            return
        if number == 1 and how == "nonsense":
            yield "{not json"
        if number == 1 and how == "error event":
            yield json.dumps({"error": {"message": "out of memory"}})
            return
        said = {"delta": {"content": "a"}} if chat else {"text": "a"}
        yield json.dumps({"choices": [{**said, "finish_reason": None}]})
        if how == "several":
            yield json.dumps({"choices": [{"index": 1, "text": "b", "finish_reason": None}]})
    said = {"delta": {}} if chat else {"text": ""}
    yield json.dumps({"choices": [{**said, "finish_reason": "length"}]})
    if how != "no usage":
        prompt = len(body.get("prompt") or body.get("messages"))
        details = {"cached_tokens": prompt // 2}
        counts = {"prompt_tokens": prompt, "completion_tokens": body["max_tokens"]}
        yield json.dumps({"choices": [], "usage": {**counts, "prompt_tokens_details": details}})
    yield "[DONE]"


def bare_events(body: dict):
    """As `transformers serve` has them: usage in the event that ends the answer, no [DONE] and
    here not even the end of the line."""
    for number in range(body["max_tokens"]):
        yield json.dumps({"choices": [{"text": f"{number} ", "index": 0}]})
    counts = {"prompt_tokens": 4, "completion_tokens": body["max_tokens"]}
    end = {"text": "", "index": 0, "finish_reason": "length"}
    yield json.dumps({"choices": [end], "usage": counts})


@contextmanager
def plain_server():
    """Yields the running `Server`."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.gate.set()
        server.end()
        thread.join(30)
