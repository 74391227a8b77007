"""A hub on the loopback, for the real clients: the endpoints that a download meets, and faults.

And the cache of Hugging Face's client, laid out by hand: refs, blobs, snapshots of links.
"""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Files = dict[str, bytes]


class Told:
    """Who is told of a download."""

    def __init__(self) -> None:
        self.amounts: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def progress(self, name: str, done: int, total: int) -> None:
        self.amounts.append((done, total))

    def note(self, name: str, text: str) -> None:
        self.notes.append(text)


def folder_files(folder: Path) -> Files:
    """A folder's files, as a repository has them."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write_cache(cache: Path, id: str, files: Files, *, ref: str | None = "main") -> Path:
    """The cache as huggingface_hub leaves it; the snapshot's folder."""
    repository = cache / f"models--{id.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    (repository / "blobs").mkdir(parents=True, exist_ok=True)
    snapshot.mkdir(parents=True, exist_ok=True)
    if ref is not None:
        (repository / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / ref).write_text(COMMIT)
    for name, body in files.items():
        blob = repository / "blobs" / hashlib.sha256(body).hexdigest()
        blob.write_bytes(body)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blob)
    return snapshot


@dataclass
class Hub:
    """What the server has and does. models: id -> files. gated: ids that want a token.

    cut: file -> bytes after which the connection ends, `cuts` times. down: every answer is 503.
    held: file -> set it to let the file go on. asked: "METHOD path" of every request.
    """

    models: dict[str, Files] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    revisions: set[str] = field(default_factory=lambda: {"main", "master", "v1", COMMIT})
    cut: dict[str, int] = field(default_factory=dict)
    cuts: int = 1 << 30
    down: bool = False
    held: dict[str, threading.Event] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def fetched(self) -> set[str]:
        """Names of the files whose bytes were sent."""
        asked = [line.partition("?")[0] for line in self.asked if "/resolve/" in line]
        return {a.split(f"/{COMMIT}/")[-1] for a in asked if a.startswith("GET")}


class HubServer:
    """Serves a Hub in a thread. Use it as a context manager."""

    def __init__(self, hub: Hub) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(_Answers):
        pass

    Handler.hub = hub
    return Handler


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        parts = urllib.parse.urlsplit(self.path)
        words = urllib.parse.unquote(parts.path).strip("/").split("/")
        if self.hub.down:
            self._json({"error": "down for a while"}, 503)
        elif words[:2] == ["api", "models"]:
            self._model("/".join(words[2:4]), words[4:])
        elif words[:3] == ["api", "v1", "models"]:
            self._modelscope("/".join(words[3:5]), words[5:], urllib.parse.parse_qs(parts.query))
        elif "resolve" in words:
            at = words.index("resolve")
            self._file("/".join(words[:at]), "/".join(words[at + 2 :]))
        else:
            self._json({"error": "no such page"}, 404)

    def _model(self, id: str, rest: list[str]) -> None:
        files = self.hub.models.get(id)
        revision = "/".join(rest[1:]) if rest else "main"
        if files is None:
            self._json({"error": "Repository not found"}, 401, "RepoNotFound")
        elif id in self.hub.gated:
            self._json({"error": "Access is restricted"}, 403, "GatedRepo")
        elif revision not in self.hub.revisions:
            self._json({"error": "Invalid rev id"}, 404, "RevisionNotFound")
        elif rest[:1] == ["tree"]:
            rows = [
                {"type": "file", "path": name, "size": len(body), **_blob(body, name)}
                for name, body in files.items()
            ]
            self._json([{**row, "oid": row.pop("blobId")} for row in rows])
        else:
            rows = [
                {"rfilename": name, "size": len(body), **_blob(body, name)}
                for name, body in files.items()
            ]
            self._json({"_id": "1", "id": id, "sha": COMMIT, "siblings": rows})

    def _file(self, id: str, name: str) -> None:
        body = self.hub.models[id][name]
        self.send_response(200)
        self.send_header("ETag", f'"{_etag(body, name)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self._send(name, body)

    def _send(self, name: str, body: bytes) -> None:
        end = self.hub.cut.get(name)
        if end is not None and self.hub.cuts > 0:
            self.hub.cuts -= 1
            self.wfile.write(body[:end])
            self.close_connection = True
        else:
            if name in self.hub.held:
                self.hub.held[name].wait(60)
            self.wfile.write(body)

    def _modelscope(self, id: str, rest: list[str], query: dict[str, list[str]]) -> None:
        files, revision = self.hub.models.get(id), query.get("Revision", ["master"])[0]
        if files is None or revision not in self.hub.revisions:
            self._json({"Code": 10010205001, "Message": "not found", "Success": False}, 404)
        elif rest == ["repo", "files"]:
            rows = [
                {
                    **{"Path": name, "Name": name, "Type": "blob", "Size": len(body)},
                    "Sha256": hashlib.sha256(body).hexdigest(),
                }
                for name, body in files.items()
            ]
            self._json({"Code": 200, "Data": {"Files": rows}, "Success": True})
        elif rest == ["repo"]:
            name = query["FilePath"][0]
            self.send_response(200)
            self.send_header("Content-Length", str(len(files[name])))
            self.end_headers()
            self._send(name, files[name])
        else:
            self._json({"Code": 200, "Data": {"Id": 1, "Name": id}, "Success": True})

    def _json(self, value: object, status: int = 200, code: str = "") -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if code:
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", json.loads(body)["error"])
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf"))


def _etag(body: bytes, name: str) -> str:
    """sha256 for large files, git's blob id for others, as on the hub."""
    if _is_large(name):
        return hashlib.sha256(body).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def _blob(body: bytes, name: str) -> dict[str, object]:
    fields: dict[str, object] = {"blobId": hashlib.sha1(body).hexdigest()}
    if not _is_large(name):
        return {"blobId": _etag(body, name)}
    return {
        **fields,
        "lfs": {
            **{"sha256": _etag(body, name), "oid": _etag(body, name)},
            **{"size": len(body), "pointerSize": 130},
        },
    }
