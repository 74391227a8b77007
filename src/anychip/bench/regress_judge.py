"""Whether a case got worse: figures now against figures before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anychip.bench.regress_baseline import Known
from anychip.bench.regress_measure import Figures
from anychip.bench.regress_speed import Spread
from anychip.contract.dtype import DType
from anychip.ops.limits import ROUNDOFF

GROWTH = 2.0
"""How many times the baseline's deviation is still the same thing: other kernels sum in another
order."""


@dataclass(frozen=True)
class Outcome:
    """A case, judged. limit: of the deviation. failed: why it is worse, each one line.

    diverges: the deviation, or the change of the perplexity, is beyond its limit. slower: a speed
    is. changed: index of the first token of the first request that is another than in the baseline.
    notes: what could not be compared.
    """

    key: str
    now: Figures
    before: Known | None
    limit: float
    diverges: bool
    slower: bool
    failed: tuple[str, ...]
    notes: tuple[str, ...]
    changed: int | None = None

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
    off = list(_off(now, limit))
    slower = list(_slower(now, before, rules.speed)) if before and rules.same_place else []
    failed = [*([now.wrong] if now.wrong else []), *off, *slower]
    changed = None if before is None else _first_change(now, before)
    verdicts = (bool(off), bool(slower), tuple(failed), tuple(notes), changed)
    return Outcome(key, now, before, limit, *verdicts)


def _off(now: Figures, limit: float) -> Iterator[str]:
    if not now.deviation <= limit:
        yield f"deviation {now.deviation:.3g} is over the limit {limit:.3g}"
    found = now.perplexity
    if found is not None and not abs(found.change) <= found.limit(limit):
        yield (
            f"perplexity {found.chip:.6g} is {found.change:+.2g} of the reference's away, over the "
            f"limit {found.limit(limit):.2g}"
        )


def _first_change(now: Figures, before: Known) -> int | None:
    """The first token of the first request that is not the baseline's."""
    answer = now.tokens[0] if now.tokens else ()
    pairs = enumerate(zip(answer, before.tokens, strict=False))
    return next((n for n, (new, old) in pairs if new != old), None)


def _slower(now: Figures, before: Known, share: float) -> Iterator[str]:
    """Where the whole interval lies beyond the share of the baseline's whole interval."""
    if now.speeds is None or before.speeds is None or not share:
        return
    for name in ("ttft", "tpot"):
        new, old = getattr(now.speeds, name), getattr(before.speeds, name)
        if new is not None and old is not None and new.low * share > old.high:
            yield f"{name} {_interval(new)} ms, was {_interval(old)}: under {share:g} of the speed"
    new, old = now.speeds.throughput, before.speeds.throughput
    if new.high < share * old.low:
        yield f"throughput {_interval(new)} tokens/s, was {_interval(old)}: under {share:g} of it"


def _interval(spread: Spread) -> str:
    return f"{spread.median:.3g} ({spread.low:.3g} to {spread.high:.3g})"
