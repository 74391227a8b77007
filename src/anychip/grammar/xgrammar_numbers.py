"""Bounds of numbers as xgrammar keeps them: past those it warns, and goes on without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anychip.grammar.errors import GrammarError, step

_MOST_MULTIPLE = 1024
_MOST_WIDTH = 10_000
_LARGEST = 2**53
_LARGEST_BOUND = 10**9
_DECIMALS = 6


def integer_bounds(said: Mapping[str, Any], pointer: str) -> dict[str, int]:
    """minimum, maximum and multipleOf of an integer. GrammarError for what is not enforced."""
    low = _tightest(said, "minimum", math.ceil, "exclusiveMinimum", lambda x: math.floor(x) + 1)
    high = _tightest(said, "maximum", math.floor, "exclusiveMaximum", lambda x: math.ceil(x) - 1)
    least, most = max(low, default=None), min(high, default=None)
    place = step(pointer, next((n for n in said if n.endswith("imum")), "type"))
    if any(bound is not None and abs(bound) > _LARGEST for bound in (least, most)):
        raise GrammarError("the bound is past 2**53, where numbers are not exact", place)
    if least is not None and most is not None and least > most:
        raise GrammarError(f"no integer is from {least} to {most}", place)
    out = {} if least is None else {"minimum": least}
    if most is not None:
        out["maximum"] = most
    if "multipleOf" in said:
        out["multipleOf"] = _multiple(said["multipleOf"], least, most, step(pointer, "multipleOf"))
    return out


def number_bounds(said: Mapping[str, Any], pointer: str) -> dict[str, float]:
    """Bounds of a number. GrammarError for what is not enforced."""
    if "multipleOf" in said:
        raise GrammarError(
            "multipleOf of numbers is not enforced by xgrammar; of integers it is",
            step(pointer, "multipleOf"),
        )
    out = {name: said[name] for name in said if name.endswith("imum")}
    for name, value in out.items():
        if abs(value) > _LARGEST_BOUND or round(value, _DECIMALS) != value:
            raise GrammarError(
                f"xgrammar keeps bounds of numbers up to {_LARGEST_BOUND} and {_DECIMALS} decimal "
                f"places, not {value!r:.40}",
                step(pointer, name),
            )
    least = max((out[n] for n in ("minimum", "exclusiveMinimum") if n in out), default=None)
    most = min((out[n] for n in ("maximum", "exclusiveMaximum") if n in out), default=None)
    if least is not None and most is not None:
        shut = {least} & {out.get("exclusiveMinimum"), out.get("exclusiveMaximum")}
        if least > most or (least == most and shut):
            raise GrammarError(
                f"no number is from {least} to {most}", step(pointer, next(iter(out)))
            )
    return out


def _tightest(
    said: Mapping[str, Any], closed: str, inside: Any, opened: str, beyond: Any
) -> list[int]:
    found = [inside(said[closed])] if closed in said else []
    return found + ([beyond(said[opened])] if opened in said else [])


def _multiple(value: float, least: int | None, most: int | None, pointer: str) -> int:
    if value <= 0 or value != int(value) or value > _MOST_MULTIPLE:
        raise GrammarError(
            f"xgrammar keeps multipleOf of integers from 1 to {_MOST_MULTIPLE}, not {value!r:.40}",
            pointer,
        )
    if (least, most) == (None, None):
        return int(value)
    if least is None or most is None or most - least >= _MOST_WIDTH:
        raise GrammarError(
            f"beside multipleOf xgrammar keeps both bounds or none, not {_MOST_WIDTH} apart; give "
            "minimum and maximum",
            pointer,
        )
    if most // int(value) * int(value) < least:
        raise GrammarError(f"no multiple of {value} is from {least} to {most}", pointer)
    return int(value)
