"""JSON inside of a grammar: read under limits, with pointers to what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from anychip.grammar.errors import GrammarError, step
from anychip.grammar.limits import GrammarLimits

_LARGEST = 2**53


def read_json(text: str, what: str, limits: GrammarLimits) -> Any:
    """The value of `text`. GrammarError where it is no JSON, nested too deep, or holds a number
    or a character that no grammar can be made of."""
    check_nesting(text, what, limits.depth * 2)
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{what} is not valid JSON: {error}") from error
    check_values(value)
    return value


def write_json(value: Any) -> str:
    """The value as compact JSON text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def check_nesting(text: str, what: str, most: int) -> None:
    """GrammarError where more than `most` brackets are open at once, strings left out."""
    depth = at = 0
    while at < len(text):
        character = text[at]
        if character == '"':
            at = _end_of_string(text, at)
        elif character in "[{":
            depth += 1
            if depth > most:
                raise GrammarError(
                    f"{what} is nested deeper than {most} brackets; use $ref for recursion"
                )
        elif character in "]}":
            depth -= 1
        at += 1


def _end_of_string(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def check_values(value: Any, pointer: str = "") -> None:
    """GrammarError, with its pointer, for a value that cannot be kept exactly."""
    if isinstance(value, str):
        _check_text(value, pointer)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key, step(pointer, key.encode("utf-8", "replace").decode()))
            check_values(inner, step(pointer, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            check_values(inner, step(pointer, index))
    elif isinstance(value, float) and not math.isfinite(value):
        raise GrammarError("the number is too large", pointer)


def check_exact(value: Any, pointer: str) -> None:
    """GrammarError for a whole number that a double does not hold exactly."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise GrammarError(f"{value!s:.40} is past 2**53, where numbers are not exact", pointer)
    if isinstance(value, dict):
        for key, inner in value.items():
            check_exact(inner, step(pointer, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            check_exact(inner, step(pointer, index))


def _check_text(text: str, pointer: str) -> None:
    if "\0" in text:
        raise GrammarError("the character NUL cannot be generated", pointer)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise GrammarError("a lone surrogate is no text", pointer)
