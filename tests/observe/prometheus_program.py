"""The real Prometheus, a process on loopback with a folder of its own, asked over its HTTP API."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

CONFIG = """
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%(rules)s]
scrape_configs:
- job_name: anychip
  static_configs: [{targets: [%(targets)s]}]
"""
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
PATIENCE_S = 90.0

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="no prometheus and promtool on the PATH (Debian, Ubuntu: apt-get install prometheus)",
)


def promtool(*words: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """The ended tool, whatever it found; `text` goes to its standard input."""
    return subprocess.run(
        ["promtool", *map(str, words)], input=text, capture_output=True, text=True, check=False
    )


class Prometheus:
    """A running server at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=30)

    def close(self) -> None:
        self._http.close()

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """The series of an instant vector, each with its labels; AssertionError for bad PromQL."""
        answer = self._http.post("/api/v1/query", data={"query": expr}).json()
        assert answer["status"] == "success", f"{answer}: {expr}"
        return [(found["metric"], float(found["value"][1])) for found in answer["data"]["result"]]

    def values(self, expr: str) -> list[float]:
        """The numbers alone; those that are none (0/0) are left out."""
        return [value for _, value in self.query(expr) if value == value]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule of ours with its health, and an alert's with who it is about."""
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for(self, condition, what: str) -> None:
        """Until `condition()`; AssertionError with `what` after a generous while."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain: {what}")
            time.sleep(0.25)


@contextmanager
def scraping(folder: Path, *targets: str):
    """A Prometheus that scrapes `host:port`s twice a second; ended by its pid."""
    config, log = folder / "prometheus.yml", folder / "log"
    listed = ", ".join(f'"{target}"' for target in targets)
    config.write_text(CONFIG % {"rules": RULES, "targets": listed})
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*words, "--web.listen-address=127.0.0.1:0"], stdout=file, stderr=file
        )
    try:
        prometheus = Prometheus(_address(process, log))
        yield prometheus
        prometheus.close()
    finally:
        process.kill()
        process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The URL that it listens at, once it is ready: port 0 lets the kernel choose."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        text = log.read_text()
        found = re.search(r'msg="Listening on" address=(127\.0\.0\.1:\d+)', text)
        if found and "ready to receive web requests" in text:
            return f"http://{found[1]}"
        time.sleep(0.05)
    raise AssertionError(f"prometheus never got ready: {log.read_text()}")
