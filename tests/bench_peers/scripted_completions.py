"""A server of /v1/completions that makes its answers up. PORT, then what is wrong with it.

Sound by default: a chunk a token, events cut in two between chunks, usage at the end.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULT = sys.argv[2] if len(sys.argv) > 2 else ""
STARTED = time.monotonic()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if FAULT == "refuses" or (FAULT == "loads" and time.monotonic() < STARTED + 0.5):
            self.send_error(503 if FAULT == "loads" else 400, "not so")
            return
        if FAULT == "hangs" and len(body["prompt"]) > 4:
            time.sleep(30)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events(body):
            raw = b"data: " + event.encode() + b"\n\n"
            self.chunk(raw[:9])
            self.chunk(raw[9:])
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def events(body: dict):
    assert body["ignore_eos"] is True and body["temperature"] == 0 and body["stream"] is True
    count = body["max_tokens"] - (FAULT == "stops" and len(body["prompt"]) > 4)
    for number in range(count):
        if number == 1 and FAULT == "fails":
            yield json.dumps({"error": {"message": "out of memory"}})
            return
        yield json.dumps({"choices": [{"text": "a", "finish_reason": None}]})
    finish = "length" if count == body["max_tokens"] else "stop"
    yield json.dumps({"choices": [{"text": "", "finish_reason": finish}]})
    if FAULT != "tells no usage":
        cached = {"cached_tokens": len(body["prompt"]) // 2}
        usage = {"completion_tokens": count, "prompt_tokens_details": cached}
        yield json.dumps({"choices": [], "usage": usage})
    yield "[DONE]"


if __name__ == "__main__":
    if FAULT == "dies":
        sys.exit("no such model")
    if FAULT == "stays":  # and so does a child, which holds 32 MiB
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hold = "b = bytearray(b'x') * (32 << 20); import time; time.sleep(60)"
        subprocess.Popen([sys.executable, "-c", hold])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
