"""How the loading of a model's weights is told: bytes, how many in all, and the rate."""

from __future__ import annotations

import time
from collections.abc import Callable

from anychip.engine.passing import Passing
from anychip.run.plan_run import Opened
from anychip.run.weights import visits

EVERY_S = 0.2
_CELLS = 20
_LARGE = 10 << 20
"""Bytes of weights from which on whole MiB are told."""


def loading_progress(opened: Opened, report: Callable[[str], None]) -> Callable[[int, int], None]:
    """What `load_weights` calls: a line now, passing ones in between, and one at the end."""
    begun, last = time.monotonic(), float("-inf")
    report(_what(opened))

    def progress(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < EVERY_S:
            return
        last = now
        rate = done / 2**20 / max(now - begun, 1e-3)
        digits = 0 if total >= _LARGE else 1
        part = f"{done / 2**20:,.{digits}f} of {total / 2**20:,.{digits}f}"
        amounts = f"{part} MiB, {rate:,.0f} MiB/s"
        if done < total:
            bar = "#" * (done * _CELLS // max(total, 1))
            report(Passing(f"  weights [{bar:.<{_CELLS}}] {amounts}"))
        else:
            report(Passing())
            report(f"  weights {amounts}")

    return progress


def _what(opened: Opened) -> str:
    files = visits(opened.checkpoint, opened.plan)
    text = f"loading {opened.checkpoint.total_bytes / 2**20:,.0f} MiB of weights"
    if opened.plan.quantized_to:
        text += f", quantizing linears to {opened.plan.quantized_to},"
    count = len(set(files))
    if count == 1:
        return f"{text} from {files[0]}"
    again = len(files) - count
    order = f"; {again} times one is opened again for a weight whose parts lie apart"
    return f"{text} from {count} files, each read once, from start to end{order if again else ''}"
