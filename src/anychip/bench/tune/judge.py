"""Whether a difference is one: intervals over repeats, the best of each variable, coupling.

A repeat is one run of each configuration with the same requests, so runs of one repeat are pairs
and a run is what is drawn: Student's interval over their differences. It is wide where there are
few repeats, which is what few repeats are worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from .plan import BASE, Configuration, Variable

Verdict = Literal["better", "worse", "noise"]

_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
_FAR = 1.960
"""Of Student's distribution at 97.5 %, for 1 to 20 degrees of freedom, and for very many."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured. better: +1 where more is better, -1 where less is."""

    name: str
    unit: str
    better: int
    scale: float = 1.0


FIGURES: Mapping[str, Figure] = {
    "throughput": Figure(name="throughput", unit="tokens/s", better=1),
    "ttft": Figure(name="TTFT", unit="ms", better=-1, scale=1000.0),
    "tpot": Figure(name="TPOT", unit="ms", better=-1, scale=1000.0),
    "goodput": Figure(name="goodput", unit="requests/s", better=1),
}
"""By the words of --objective. scale: from what is kept (seconds) to the unit."""


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """A mean and where the true one lies with 95 % confidence."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """In another unit."""
        ends = sorted((self.low * factor, self.high * factor))
        return Interval(self.value * factor, *ends)


def quantile(freedom: float) -> float:
    """Student's, two-sided; between whole degrees of freedom the wider one."""
    whole = max(1, math.floor(freedom))
    if whole <= len(_QUANTILES):
        return _QUANTILES[whole - 1]
    # Between 20 degrees and very many it falls like 1 / freedom.
    return _FAR + (_QUANTILES[-1] - _FAR) * len(_QUANTILES) / whole


def interval(values: Sequence[float]) -> Interval:
    """Of the mean. One value alone says nothing about how far off it is: without bounds."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Interval(mean, -math.inf, math.inf)
    half = quantile(count - 1) * math.sqrt(_variance(values) / count)
    return Interval(mean, mean - half, mean + half)


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def paired(values: Sequence[float], base: Sequence[float]) -> Interval:
    """By how much values exceed the base's of the same repeats, as a share of the base's.

    Of their mean factor: what slows a machine down slows all down by a factor. Where one of them is
    0, of the mean difference, as a share of the base's mean (of 1 where that is 0).
    """
    pairs = list(zip(values, base, strict=True))
    if _positive(values, base):
        return _as_share(interval([math.log(value / other) for value, other in pairs]))
    scale = math.fsum(base) / len(base) or 1.0
    return interval([(value - other) / scale for value, other in pairs])


def unpaired(values: Sequence[float], others: Sequence[float]) -> Interval:
    """The same of values of another day, which are no pairs: Welch's interval."""
    if _positive(values, others):
        return _as_share(_welch([math.log(v) for v in values], [math.log(v) for v in others]))
    scale = math.fsum(others) / len(others) or 1.0
    return _welch(values, others).times(1 / scale)


def _positive(*several: Sequence[float]) -> bool:
    return all(value > 0 for values in several for value in values)


_LARGEST_LOG = 700.0


def _as_share(logs: Interval) -> Interval:
    """From logarithms of factors."""
    return Interval(*(_share(end) for end in (logs.value, logs.low, logs.high)))


def _share(log: float) -> float:
    return math.inf if log > _LARGEST_LOG else math.expm1(log)


def _welch(values: Sequence[float], others: Sequence[float]) -> Interval:
    mean = math.fsum(values) / len(values) - math.fsum(others) / len(others)
    if min(len(values), len(others)) < 2:
        return Interval(mean, -math.inf, math.inf)
    parts = [_variance(each) / len(each) for each in (values, others)]
    total = sum(parts)
    if total == 0:
        return Interval(mean, mean, mean)
    counts = (len(values), len(others))
    freedom = total**2 / sum(p**2 / (n - 1) for p, n in zip(parts, counts, strict=True))
    half = quantile(freedom) * math.sqrt(total)
    return Interval(mean, mean - half, mean + half)


def verdict(difference: Interval, better: int) -> Verdict:
    """Noise where no difference at all is within the interval."""
    if difference.low <= 0 <= difference.high:
        return "noise"
    return "better" if difference.value * better > 0 else "worse"


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration's runs. values: figure -> one value a repeat (a figure that some run does not
    have is left out). failed: calls that got no whole answer; broken: why it could not run."""

    configuration: Configuration
    values: Mapping[str, tuple[float, ...]] = {}
    failed: int = 0
    broken: str = ""


def winner(series: Sequence[Series], objective: str) -> Series | None:
    """The one that beats the base beyond noise, and the others; None where nothing does.

    Of those that nothing tells apart from the best one, the one with the fewest changes.
    """
    base = _base(series)
    beating = [one for one in series if _beats(one, base, objective)]
    if not beating:
        return None
    better = FIGURES[objective].better
    best = max(beating, key=lambda one: better * _mean(one, objective))
    alike = [one for one in beating if not _beats(best, one, objective)]
    fewest = min(len(one.configuration.changes) for one in alike)
    few = [one for one in alike if len(one.configuration.changes) == fewest]
    return max(few, key=lambda one: better * _mean(one, objective))


def best_of_each(
    series: Sequence[Series], variables: Sequence[Variable], objective: str
) -> dict[str, str]:
    """flag -> the value that beats the base beyond noise, of variables that have one."""
    found = {}
    for variable in variables:
        own = [one for one in series if _is_of(one.configuration, variable)]
        won = winner([_base(series), *own], objective)
        if won is not None:
            found[variable.flag] = won.configuration.changes[0][1]
    return found


def _is_of(configuration: Configuration, variable: Variable) -> bool:
    return len(configuration.changes) == 1 and configuration.changes[0][0] == variable.flag


def _base(series: Sequence[Series]) -> Series:
    return next(one for one in series if one.configuration == BASE)


def _mean(one: Series, name: str) -> float:
    values = one.values[name]
    return math.fsum(values) / len(values)


def _beats(one: Series, other: Series, objective: str) -> bool:
    """Beyond noise, and with no more calls that fail: speed of lost answers means nothing."""
    if one is other or one.broken or other.broken or one.failed > other.failed:
        return False
    if objective not in one.values or objective not in other.values:
        return False
    difference = paired(one.values[objective], other.values[objective])
    return verdict(difference, FIGURES[objective].better) == "better"


class Coupling(msgspec.Struct, frozen=True, kw_only=True):
    """What the best of each gain together beyond the product of what each gains alone, as a share.
    kind: for people."""

    beyond: Interval
    kind: Literal["they help each other", "they get in each other's way", "each gains its own"]


def coupling(series: Sequence[Series], objective: str) -> Coupling | None:
    """Of the second pass; None where there was nothing to put together, or a figure is 0."""
    base = _base(series)
    both = next((one for one in series if len(one.configuration.changes) > 1), None)
    singles = [one for one in series if len(one.configuration.changes) == 1]
    needed = [one.values.get(objective, ()) for one in (base, *singles, *([both] if both else []))]
    if both is None or not all(needed) or not _positive(*needed):
        return None
    zero, *alone, together = ([math.log(value) for value in values] for values in needed)
    rows = range(len(zero))
    gains = [sum(each[row] - zero[row] for each in alone) for row in rows]
    better = FIGURES[objective].better
    beyond = [better * (together[row] - zero[row] - gains[row]) for row in rows]
    found = _as_share(interval(beyond))
    kinds: Mapping[Verdict, Literal["they help each other", "they get in each other's way"]] = {
        "better": "they help each other",
        "worse": "they get in each other's way",
    }
    return Coupling(beyond=found, kind=kinds.get(verdict(found, 1), "each gains its own"))
