"""What router tests share: scripted workers and a router, each in a thread of this process."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import contextmanager

import uvicorn
import uvloop
from starlette.requests import Request

from anychip.config import RouterConfig
from anychip.http.http_server import HttpServer
from anychip.http.listening import bind, url_of
from anychip.router.run import run_router
from in_thread import InThread, in_thread
from served import wait_until

EVENT = b'data: {"id":"%s","choices":[{"text":"%s"}]}\n\n'
DONE = b"data: [DONE]\n\n"


class ScriptedWorker:
    """A server that does what the prompt of a call says. Its pieces are counted as it sends them.

    "die": breaks off within the third event; "hang": never answers; "hold": streams two events and
    waits for `gate`; "big": streams `BIG` bytes; "500", "503": answers so. Anything else: five
    events, or one answer.
    """

    BIG = 256 << 20

    def __init__(self, name: str, *, models=("m",), info=None, openapi=None) -> None:
        self.name, self.models, self.info = name, list(models), info
        self.openapi = openapi
        self.ready_status, self.busy = 200, False
        self.calls, self.left, self.sent, self.responses = [], 0, 0, {}
        self.gate = threading.Event()
        self.socket = bind("127.0.0.1", 0)
        self.url = url_of(self.socket)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.up = threading.Event()

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.calls]

    def _main(self) -> None:
        config = uvicorn.Config(self, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        self.server = HttpServer(config)
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        serving = asyncio.ensure_future(self.server.serve(sockets=[self.socket]))
        await self.server.up.wait()
        self.up.set()
        await serving

    def start(self) -> ScriptedWorker:
        self.thread.start()
        assert self.up.wait(60)
        return self

    def stop(self) -> None:
        if self.thread.is_alive():
            self.gate.set()
            self.server.should_exit = self.server.force_exit = True
            self.thread.join(30)
        self.socket.close()

    async def __call__(self, scope, receive, send) -> None:
        body = await Request(scope, receive).body()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path, method = scope["path"], scope["method"]
        if path in ("/ready", "/v1/models", "/server_info"):
            await self._about(path, send)
            return
        if path == "/openapi.json":
            await reply(send, 404 if self.openapi is None else 200, self.openapi or {})
            return
        self.calls.append((method, path, headers, json.loads(body) if body else None))
        await self._answer(method, path, json.loads(body) if body else {}, (receive, send))

    async def _about(self, path, send) -> None:
        if path == "/ready":
            await reply(send, self.ready_status, {"error": {"message": "it was told to say so"}})
        elif path == "/v1/models":
            data = [{"id": name, "object": "model"} for name in self.models]
            await reply(send, 200, {"object": "list", "data": data})
        elif self.info is None:
            await reply(send, 404, {})
        else:
            await reply(send, 200, self.info)

    async def _answer(self, method, path, asked, channel) -> None:
        receive, send = channel
        if path == "/abort_request" and self.busy:
            await reply(send, 401, {"error": {"message": "whose key is that?"}})
        elif path == "/abort_request":
            known = asked.get("abort_all") or asked.get("rid") == self.running
            await reply(send, 200 if known else 404, {"aborted": 1} if known else {})
        elif path == "/flush_cache":
            await reply(send, 400 if self.busy else 200, {"success": not self.busy})
        elif path.startswith("/v1/responses/"):
            name = path.split("/")[3]
            await reply(send, 200 if name in self.responses else 404, self.responses.get(name, {}))
            if method == "DELETE":
                self.responses.pop(name, None)
        elif path == "/v1/responses":
            name = f"resp_{self.name}{len(self.responses)}"
            self.responses[name] = {"id": name, "object": "response"}
            await reply(send, 200, self.responses[name])
        else:
            await self._generate(asked, receive, send)

    running = None

    async def _generate(self, asked, receive, send) -> None:
        mode = asked.get("prompt")
        if self.busy or mode == "503":
            error = {"error": {"message": "full", "code": "queue_full"}}
            await reply(send, 503, error, retry_after="7")
        elif mode == "500":
            await reply(send, 500, {"error": {"message": "broken"}})
        elif mode == "hang":
            await self._until_left(receive)
        elif asked.get("stream"):
            await self._stream(mode, receive, send)
        else:
            await reply(send, 200, {"id": f"cmpl-{self.name}", "choices": [{"text": "abc"}]})

    async def _stream(self, mode, receive, send) -> None:
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        leaving = asyncio.ensure_future(self._until_left(receive))
        event = EVENT % (b"cmpl-" + self.name.encode(), self.name.encode())
        try:
            for number in range(5):
                if mode == "die" and number == 2:
                    await piece(send, event[:20])
                    raise RuntimeError("scripted")
                if mode == "hold" and number == 2:
                    while not (self.gate.is_set() or leaving.done()):
                        await asyncio.sleep(0.005)
                if leaving.done():
                    return
                await piece(send, event)
            while mode == "big" and self.sent < self.BIG and not leaving.done():
                chunk = b"data: " + b"x" * (1 << 16) + b"\n\n"
                await piece(send, chunk)
                self.sent += len(chunk)
            await send({"type": "http.response.body", "body": DONE})
        finally:
            leaving.cancel()

    async def _until_left(self, receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left += 1


async def piece(send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def reply(send, status: int, body, retry_after: str | None = None) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    if retry_after is not None:
        headers.append((b"retry-after", retry_after.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


@contextmanager
def scripted(*names: str, **options):
    """Workers of these names."""
    workers = [ScriptedWorker(name, **options) for name in names]
    try:
        yield [worker.start() for worker in workers]
    finally:
        for worker in workers:
            worker.stop()


class RunningRouter(InThread):
    """A router in a thread."""

    async def serve(self) -> int:
        return await run_router(self.config, self.socket, self.stop, on_up=self._on_up)

    def _on_up(self, desk) -> None:
        self.desk = desk
        self.ready.set()

    def state(self, name: str) -> dict:
        with self.http() as http:
            told = http.get("/workers").json()["workers"]
        return next((one for one in told if one["name"] == name), {"state": "gone"})

    def wait_for(self, *names: str, state: str = "ready") -> RunningRouter:
        for name in names:
            wait_until(lambda name=name: self.state(name)["state"] == state)
        return self

    def check_book(self) -> None:
        """In the router's own thread, as everything about it."""

        async def check() -> None:
            self.desk.fleet.book.check()

        asyncio.run_coroutine_threadsafe(check(), self.loop).result(30)


def router_config(workers, **changes) -> RouterConfig:
    values = {
        "port": 0,
        "worker": {one.name: one.url for one in workers},
        "health_check_interval_s": 0.05,
        "policy": "least_load",
        "shutdown_timeout": 5.0,
    }
    return RouterConfig(**{**values, **changes})


@contextmanager
def routing(workers, *, wait: bool = True, **changes):
    """A router before these workers, which are ready unless `wait` is false."""
    with in_thread(RunningRouter(router_config(workers, **changes))) as router:
        yield router.wait_for(*(one.name for one in workers)) if wait else router


def closed_port() -> int:
    """Where nobody listens, for as long as the test lasts: it is taken, and not listened at."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    _kept.append(taken)
    return taken.getsockname()[1]


_kept: list[socket.socket] = []


def completion(prompt: str = "hi", **fields) -> dict:
    return {"model": "m", "prompt": prompt, "max_tokens": 5, **fields}


def events_of(text: str) -> list:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]
