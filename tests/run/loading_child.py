"""Loads a model on a chip and prints what it cost in host memory, in a process of its own.

`python loading_child.py MODEL CHIP DTYPE [hoard]`: prints JSON {"peak": .., "chip": .., "amounts":
[..]}; peak: bytes above what the process had before, the chip's own memory included. hoard: files'
pages are never given back and nothing is waited for: what a careless loader would do.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from anychip.config import ServeConfig
from anychip.run.plan_run import open_run
from anychip.run.weights import load_weights


def memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) << 10


class Hoarding:
    """A checkpoint, or a queue, that does not do what is left out."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def give_back(self) -> None:
        pass


def main() -> None:
    model, chip, dtype, *more = sys.argv[1:]
    config = ServeConfig(model_path=model, backend=chip, dtype=dtype, context_length=64)
    opened = open_run(config)
    checkpoint = Hoarding(opened.checkpoint) if "hoard" in more else opened.checkpoint
    amounts = []
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    loaded = load_weights(checkpoint, opened.plan, opened.chip, lambda *a: amounts.append(a))
    peak = memory("VmHWM") - before
    used = opened.chip.memory.info().used
    loaded.release(opened.chip)
    opened.close()
    print(json.dumps({"peak": peak, "chip": used, "amounts": amounts}))


if __name__ == "__main__":
    main()
