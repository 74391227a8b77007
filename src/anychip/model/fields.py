"""Typed access to settings that somebody else wrote: config.json, GGUF metadata."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anychip.model.errors import CheckpointError


@dataclass(frozen=True)
class Fields:
    """settings: as parsed. origin: what to call them in an error. prefix: of every key."""

    settings: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer; CheckpointError where it is none, or missing without a default."""
        value = self._get(key, default)
        if type(value) is not int:
            raise self._error(key, value, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._get(key, default)
        if not _is_number(value):
            raise self._error(key, value, "a number")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.number(key, default)
        if value <= 0:
            raise self._error(key, value, "a positive number")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self._get(key, default)
        if type(value) is not bool:
            raise self._error(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._get(key, default)
        if type(value) is not str:
            raise self._error(key, value, "a string")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        value = self._get(key, None)
        if not isinstance(value, list) or not all(map(_is_number, value)):
            raise self._error(key, value, "a list of numbers")
        return tuple(float(v) for v in value)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers; empty where it is missing."""
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or any(type(v) is not int for v in value):
            raise self._error(key, value, "a list of integers")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where it is missing."""
        value = self._get(key, ())
        if not isinstance(value, list | tuple) or any(type(v) is not str for v in value):
            raise self._error(key, value, "a list of strings")
        return tuple(value)

    def defaulting(self, **defaults: Any) -> Fields:
        """The same, with these where a setting is missing or null."""
        given = {k: v for k, v in self.settings.items() if v is not None}
        prefixed = {self.prefix + key: value for key, value in defaults.items()}
        return replace(self, settings={**prefixed, **given})

    def has(self, key: str) -> bool:
        """Whether it is there and not null."""
        return self.settings.get(self.prefix + key) is not None

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One id, a list of them, or none; each once."""
        value = self.settings.get(self.prefix + key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if any(type(v) is not int for v in values):
            raise CheckpointError(f"'{key}' is {value!r:.60}, not a token id or a list of them")
        return tuple(dict.fromkeys(values))

    def _get(self, key: str, default: Any) -> Any:
        value = self.settings.get(self.prefix + key)
        value = default if value is None else value
        if value is None:
            raise CheckpointError(f"{self.origin} has no '{self.prefix}{key}'")
        return value

    def _error(self, key: str, value: Any, needed: str) -> CheckpointError:
        shown = f"{value!r:.60}"
        return CheckpointError(f"{self.origin}: '{self.prefix}{key}' is {shown}, not {needed}")


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that a float holds: JSON has integers of any length."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def head_size(hidden: int, heads: int, given: Any) -> int | None:
    """The head size where the checkpoint does not give it."""
    if given is not None:
        return None
    if heads < 1 or hidden % heads:
        raise CheckpointError(f"a hidden size of {hidden} does not divide into {heads} heads")
    return hidden // heads
