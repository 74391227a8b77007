"""Flags of the commands that send a trace: how fast, how much of it, and what a good answer is."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from anychip.flags import Flag, declared

if TYPE_CHECKING:
    from anychip.bench.load.figures import Slo
    from anychip.bench.load.scaling import Scaling

_GROUP = "load"


def flag(
    name: str,
    help: str,
    metavar: str = "N",
    *,
    group: str = _GROUP,
    low: float | None = None,
    high: float | None = None,
) -> Flag:
    """A flag of one word and one value."""
    return Flag((name,), group, help, metavar, low=low, high=high)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The load that is made of a trace."""

    requests: int | None = declared(
        None,
        Flag(
            ("--requests", "--limit"),
            _GROUP,
            "the first N of the trace alone [all]; --limit is its older name",
            low=1,
        ),
    )
    speed: float = declared(
        1.0, flag("--speed", "of the time axis: 2 sends twice as fast", "X", low=1e-6, high=1e6)
    )
    scale_input: float = declared(
        1.0, flag("--scale-input", "prompt lengths times this", "X", low=1e-6, high=1000)
    )
    scale_output: float = declared(
        1.0, flag("--scale-output", "answer lengths times this", "X", low=1e-6, high=1000)
    )
    max_input: int | None = declared(
        None, flag("--max-input", "cut prompts at N tokens, once scaled", low=1)
    )
    max_output: int | None = declared(
        None, flag("--max-output", "cut answers at N tokens, once scaled", low=1)
    )
    slo_ttft: float | None = declared(
        None, flag("--slo-ttft", "a good answer begins within so long", "MS", low=1e-3, high=1e9)
    )
    slo_tpot: float | None = declared(
        None, flag("--slo-tpot", "and takes so long a token at most", "MS", low=1e-3, high=1e9)
    )

    def scaling(self) -> Scaling:
        """How the trace's lengths become the load's."""
        from anychip.bench.load.scaling import Scaling

        return Scaling(
            input=self.scale_input,
            output=self.scale_output,
            max_input=self.max_input,
            max_output=self.max_output,
        )

    def slo(self) -> Slo:
        """What an answer has to keep."""
        from anychip.bench.load.figures import Slo

        return Slo(ttft_s=_seconds(self.slo_ttft), tpot_s=_seconds(self.slo_tpot))


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
