"""Whether a case got worse: figures now against figures before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anychip.bench.regress_baseline import Known
from anychip.bench.regress_measure import Figures
from anychip.contract.dtype import DType
from anychip.ops.limits import ROUNDOFF

GROWTH = 2.0
"""How many times the baseline's deviation is still the same thing: other kernels sum in another
order."""


@dataclass(frozen=True)
class Outcome:
    """A case, judged. limit: of the deviation. failed: why it is worse, each one line.

    diverges: the deviation is beyond the limit. slower: a speed is. notes: what could not be
    compared.
    """

    key: str
    now: Figures
    before: Known | None
    limit: float
    diverges: bool
    slower: bool
    failed: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is worse."""
        return not self.failed


@dataclass(frozen=True)
class Rules:
    """speed: the least share of the baseline's speed, 0: not judged. same_place: the baseline is of
    this very fingerprint, so that speeds can be compared."""

    speed: float
    same_place: bool


def judge(
    key: str, now: Figures, before: Known | None, rules: Rules, own_limit: Callable[[], float]
) -> Outcome:
    """own_limit: the limit where there is no baseline of the case in this dtype; costs a run."""
    notes: list[str] = []
    if before is not None and before.dtype != now.dtype:
        notes.append(f"the baseline is in {before.dtype}")
        before = None
    elif before is None:
        notes.append("no baseline")
    roundoff = ROUNDOFF[DType(now.dtype)]
    limit = own_limit() if before is None else GROWTH * before.deviation + roundoff
    diverges = not now.deviation <= limit
    failed = [now.wrong] if now.wrong else []
    if diverges:
        failed.append(f"deviation {now.deviation:.3g} is over the limit {limit:.3g}")
    slower = _slower(now, before, rules.speed) if before and rules.same_place else []
    failed += slower
    return Outcome(key, now, before, limit, diverges, bool(slower), tuple(failed), tuple(notes))


def _slower(now: Figures, before: Known, share: float) -> list[str]:
    speeds = (("prefill", now.prefill, before.prefill), ("decode", now.decode, before.decode))
    return [
        f"{name} {new:.0f} tokens/s, was {old:.0f}: under {share:g} of it"
        for name, new, old in speeds
        if new is not None and old is not None and new < share * old
    ]
