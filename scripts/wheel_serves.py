"""Serves the demo model from an installed wheel, with no compiler on the path, and compares.

    python scripts/wheel_serves.py SITE    # SITE: the folder that pip --target installed it into

The first tokens have to be those that kernels compiled from this checkout give. Called by CI.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from anychip import Engine

PROMPT, TOKENS, DEADLINE_S = "The capital of France is", 16, 300
ASKED = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}


def served(site: Path, folder: Path) -> str:
    """What a server of that installation answers; it may use its prebuilt kernels alone."""
    empty = folder / "no-compiler"
    empty.mkdir(parents=True, exist_ok=True)
    found_nowhere = ("env", f"PATH={empty}", f"PYTHONPATH={site}")
    line = (sys.executable, "-m", "anychip", "serve", "--port", "0", "--chip-option")
    with (folder / "log").open("w+") as log:
        server = subprocess.Popen(
            [*found_nowhere, *line, "kernels=prebuilt"], stdout=log, stderr=log, cwd=folder
        )
        try:
            return asked(address(server, folder / "log"))
        finally:
            server.terminate()
            server.wait(60)


def address(server: subprocess.Popen, log: Path) -> str:
    """Where it listens, as it says when it is ready. Raises SystemExit with what it said."""
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends and server.poll() is None:
        words = log.read_text().split()
        found = [w.strip(".,") for w in words if w.startswith("http://127.0.0.1:")]
        if found and ready(found[-1]):
            return found[-1]
        time.sleep(0.2)
    raise SystemExit(f"the server is not ready:\n{log.read_text()}")


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def asked(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=DEADLINE_S) as answer:
        model = json.load(answer)["data"][0]["id"]
    body = json.dumps({"model": model, **ASKED}).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", body, head)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        text: str = json.load(answer)["choices"][0]["text"]
    return text


def compiled() -> str:
    """What this checkout's kernels answer."""
    with Engine(chip_option={"kernels": "compiled"}) as engine:
        return engine.generate(PROMPT, max_tokens=TOKENS, temperature=0).text


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("site", type=Path, help="folder that pip --target installed it into")
    site = parser.parse_args().site.resolve()
    if not (site / "anychip").is_dir():
        parser.error(f"{site}: no anychip is installed there; pip install --target {site} WHEEL")
    with tempfile.TemporaryDirectory() as folder:  # never beside SITE: that may be a checkout
        ours, theirs = compiled(), served(site, Path(folder))
    if ours != theirs:
        raise SystemExit(f"the wheel answers {theirs!r}, the checkout {ours!r}")
    print(f"the wheel serves without a compiler, and answers as the checkout does: {theirs!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
