"""A fake chip, `--backend dawdling`, whose steps take long however many requests they serve.

So few requests at once are slow, and the more run at once the more tokens come in a second: by as
much as option `seconds` says, whatever the machine does meanwhile. Option `red`: its device check
fails, though it works.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path

import pytest

from anychip.chips.fake.registration import FakeChip
from anychip.contract.build import Finding, Verdict
from anychip.contract.operators import Implementation, OperatorTable
from anychip.contract.registration import Option, register_chip

ONCE_A_STEP = "lm_head"


@register_chip("dawdling", contract=(0, 1))
class DawdlingChip(FakeChip):
    """See above."""

    options = (
        *FakeChip.options,
        Option("seconds", float, 0.0, "what a step takes besides computing"),
        Option("red", bool, False, "its device check fails"),
    )

    def __init__(self, values) -> None:
        super().__init__(values)
        found = self.operators.implementations
        slow = (_slow(i, values["seconds"]) if i.op == ONCE_A_STEP else i for i in found)
        self.operators = OperatorTable(tuple(slow))

    @classmethod
    def open(cls, device, options):
        return cls(options)

    @classmethod
    def check_device(cls, device, timeout, options):
        verdict = Verdict.BAD if options["red"] else Verdict.GOOD
        return Finding("device", verdict, "ones were not added", "look for another device")


def _slow(sound: Implementation, seconds: float) -> Implementation:
    def prepare(call):
        launch = sound.prepare(call)

        def late() -> None:
            time.sleep(seconds)
            launch()

        return late

    return dataclasses.replace(sound, prepare=prepare)


@contextlib.contextmanager
def installed(site: Path):
    """While it is open, the backend is found, as if pip had installed it."""
    info = site / "anychip_dawdling-0.1.0.dist-info"
    info.mkdir()
    head = "Metadata-Version: 2.1\nName: anychip-dawdling\nVersion: 0.1.0\n"
    (info / "METADATA").write_text(head)
    entry = "[anychip.chips]\ndawdling = dawdling_chip:DawdlingChip\n"
    (info / "entry_points.txt").write_text(entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.syspath_prepend(str(Path(__file__).parent))
        yield
