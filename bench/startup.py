"""From process start to ready and to the first token, and the resident memory of all processes.

.venv/bin/python bench/startup.py [MODEL] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from command_line import count, need
from race.engines import COMPILED


def measure(model: str | None) -> dict[str, float]:
    """One server: started, asked for one token, stopped."""
    command = [*COMPILED, sys.executable, "-m", "anychip", "serve", "--port", "0"]
    command += ["--model-path", model] if model else []
    began = time.perf_counter()
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = wait_until_ready(server)
        ready = time.perf_counter() - began
        body = json.dumps({"prompt": "Hello", "max_tokens": 1}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/completions", body, headers)
        urllib.request.urlopen(request, timeout=60).read()
        first = time.perf_counter() - began
        return {"ready, s": ready, "first token, s": first, "resident, MiB": resident(server.pid)}
    finally:
        server.terminate()
        server.wait(30)


def wait_until_ready(server: subprocess.Popen[str]) -> str:
    """The URL of the ready line. Raises SystemExit with the last line where there is none."""
    line = "it said nothing"
    for line in server.stderr or ():
        found = re.search(r"ready: .* (http://\S+)", line)
        if found:
            return found[1]
    raise SystemExit(f"the server ended with {server.wait()}: {line.strip()}")


def resident(pid: int) -> float:
    """Proportional set size of a process and its children, MiB: shared pages count once."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    return int(own[1] if own else 0) / 1024 + sum(resident(int(child)) for child in children)


def main() -> None:
    """Print a Markdown table: median, least, most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a GGUF file or a folder [the demo model]")
    parser.add_argument("--repeats", type=count, default=5, help="[5]")
    asked = parser.parse_args()
    need("anychip")
    runs = [measure(asked.model) for _ in range(asked.repeats)]
    print("| figure | median | least | most |\n|---|---|---|---|")
    for figure in runs[0]:
        values = [run[figure] for run in runs]
        cells = (statistics.median(values), min(values), max(values))
        print(f"| {figure} | " + " | ".join(f"{value:.3g}" for value in cells) + " |")


if __name__ == "__main__":
    main()
