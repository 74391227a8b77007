"""What every policy is given and gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from .asking import Ask

Why = Literal["prefix", "balance", "load", "turn", "chance", "key", "only"]
"""Why a worker was chosen.

prefix: it has most of the prompt; balance: another has, but too much to do; load: it has least to
do; turn, chance, key: as the policy's name says; only: no other could be taken.
"""

UNKNOWN_WINDOW = 64
"""Calls at once that a worker is taken to answer well where nothing is known of any."""


class Seen(NamedTuple):
    """A worker that could be taken. calls, tokens (of prompts): in flight. window: calls at once.

    weight: how much work it takes on beside the others, above 0; 1.0 unless the user says so.
    """

    name: str
    calls: int = 0
    tokens: int = 0
    window: int | None = None
    weight: float = 1.0


class Choice(NamedTuple):
    """Who is taken, and why. matched_tokens: of the prompt that it is believed to have cached."""

    name: str
    why: Why
    matched_tokens: int = 0


class Policy(Protocol):
    """Chooses a worker for each call. Belongs to one event loop; never waits."""

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """One of `seen`, which is never empty and holds each name once."""

    def served(self, ask: Ask, name: str) -> None:
        """The call went to this worker, which has its prompt in its cache from now on."""

    def forget(self, name: str) -> None:
        """The worker is gone, or was started again, or its cache was emptied."""


@dataclass(frozen=True)
class PolicyOptions:
    """What policies are told by flags.

    seed: of what is drawn. cache_threshold: share of a prompt, below which having it is no reason
    to take a worker. balance_abs, balance_rel: a worker that has the prompt is passed over where
    its load is above the least by more than balance_abs (a share of its window) and above
    balance_rel times the least.
    """

    seed: int = 0
    cache_threshold: float = 0.1
    balance_abs: float = 0.25
    balance_rel: float = 1.5


def loads(seen: Sequence[Seen]) -> list[float]:
    """Calls in flight of each, as a share of what it takes at once: its window by its weight.

    A worker that does not tell its window is taken to have the smallest that another tells.
    """
    told = [one.window for one in seen if one.window]
    unknown = min(told, default=UNKNOWN_WINDOW)
    return [one.calls / ((one.window or unknown) * one.weight) for one in seen]
