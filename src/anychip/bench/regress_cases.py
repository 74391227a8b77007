"""What `anychip regress` runs: model, format, length and route, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

DEMO = "demo"
"""The model that is fetched; all others are written on the spot."""


@dataclass(frozen=True)
class Route:
    """How a prompt is computed.

    tokens: new ones. chunk: most prompt tokens in a step, None: the chip's own. requests: at once.
    cached: the prompt was computed before, its whole pages come from the prefix cache.
    """

    name: str
    tokens: int = 1
    chunk: int | None = None
    requests: int = 1
    cached: bool = False


PREFILL = Route("prefill")
CHUNKED = Route("chunked", chunk=7)
DECODE = Route("decode", tokens=8)
CACHED = Route("cached", cached=True)
BATCH = Route("batch", tokens=4, requests=4)


@dataclass(frozen=True)
class Case:
    """model: DEMO, or tiny in this format. length: prompt tokens (of the longest request)."""

    model: str
    length: int
    route: Route

    @property
    def key(self) -> str:
        """Its name in baselines and reports."""
        return f"{self.model}/{self.length}/{self.route.name}"

    @property
    def lengths(self) -> tuple[int, ...]:
        """Prompt tokens of each request: a batch is ragged."""
        return tuple(max(1, self.length - 5 * n) for n in range(self.route.requests))


FORMATS = ("float32", "bfloat16", "q8_0", "q4_0", "q4_1")
_SHORT = {1: (PREFILL, DECODE), 17: (PREFILL, CHUNKED, DECODE, CACHED, BATCH)}
_CI = {**_SHORT, 130: (PREFILL, CHUNKED, DECODE, CACHED, BATCH)}
_FULL = {**_CI, 450: (PREFILL, CHUNKED, DECODE, CACHED)}
_DEMO = {17: (PREFILL, DECODE, BATCH), 130: (PREFILL, CHUNKED, DECODE, CACHED)}


def _cases(model: str, lengths: Mapping[int, tuple[Route, ...]]) -> Iterator[Case]:
    for length, routes in lengths.items():
        yield from (Case(model, length, route) for route in routes)


SETS: Mapping[str, tuple[Case, ...]] = {
    "ci": tuple(c for f in FORMATS for c in _cases(f"tiny-{f}", _CI)),
    "full": (
        *(c for f in FORMATS for c in _cases(f"tiny-{f}", _FULL)),
        *_cases(DEMO, _DEMO),
    ),
}


def chosen(name: str, only: str | None) -> tuple[Case, ...]:
    """The cases of a set whose key fits the pattern `only`. Raises KeyError for no such set."""
    return tuple(c for c in SETS[name] if only is None or fnmatchcase(c.key, only))
