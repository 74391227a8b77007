"""Who answers a call: the policies by the names of --policy. Equal seeds make equal choices."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

from anychip.flags import ConfigError

from .asking import Ask
from .choosing import Choice, Policy, PolicyOptions, Seen, Why, loads
from .prefixes import Chain, Prefixes, chain_of, tokens_of

MOST_TURNS = 1024
"""Sets of candidates whose turn is remembered; workers that come and go make new ones."""


class _Turns:
    """Whose turn it is among the same candidates, so that equals are taken one after another."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, ...], int] = {}

    def among(self, candidates: Sequence[Seen]) -> Seen:
        if len(candidates) == 1:
            return candidates[0]
        names = tuple(one.name for one in candidates)
        place = self._next.get(names, 0)
        if len(self._next) >= MOST_TURNS:
            self._next.clear()
        self._next[names] = (place + 1) % len(candidates)
        return candidates[place]


def _least(seen: Sequence[Seen], load: Sequence[float], turns: _Turns) -> Seen:
    """Least to do in calls, then in tokens of prompts; equals take turns."""
    weights = [(share, one.tokens / one.weight) for share, one in zip(load, seen, strict=True)]
    least = min(weights)
    equal = [one for one, weight in zip(seen, weights, strict=True) if weight == least]
    return turns.among(equal)


class _Forgetful:
    """A policy that keeps nothing of calls and workers."""

    def served(self, ask: Ask, name: str) -> None:
        """Nothing to keep."""

    def forget(self, name: str) -> None:
        """Nothing was kept."""


class LeastLoad(_Forgetful):
    """The worker with the least to do, as a share of what it takes at once."""

    def __init__(self, options: PolicyOptions) -> None:
        self._turns = _Turns()

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """See the class."""
        return Choice(_least(seen, loads(seen), self._turns).name, _unless_only(seen, "load"))


class PowerOfTwo(_Forgetful):
    """The less loaded of two drawn by chance."""

    def __init__(self, options: PolicyOptions) -> None:
        self._random, self._turns = random.Random(options.seed), _Turns()

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """See the class."""
        places = sorted(self._random.sample(range(len(seen)), min(2, len(seen))))
        load = loads(seen)
        two, shares = [seen[place] for place in places], [load[place] for place in places]
        return Choice(_least(two, shares, self._turns).name, _unless_only(seen, "load"))


class RoundRobin(_Forgetful):
    """One after another, whatever they have to do."""

    def __init__(self, options: PolicyOptions) -> None:
        self._turns = _Turns()

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """See the class."""
        return Choice(self._turns.among(seen).name, _unless_only(seen, "turn"))


class Random(_Forgetful):
    """By chance, in proportion to the weights."""

    def __init__(self, options: PolicyOptions) -> None:
        self._random = random.Random(options.seed)

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """See the class."""
        (drawn,) = self._random.choices(seen, [one.weight for one in seen])
        return Choice(drawn.name, _unless_only(seen, "chance"))


class Consistent(_Forgetful):
    """By the call's key: the same worker each time, as long as it can be taken.

    Each worker draws a number from its name and the key, and the best one wins. So one that
    leaves takes its own keys with it and moves no other, and they come back with it. A call
    without a key goes where there is least to do.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self._turns = _Turns()

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """See the class."""
        if ask.key is None:
            least = _least(seen, loads(seen), self._turns)
            return Choice(least.name, _unless_only(seen, "load"))
        key = ask.key.encode("utf-8", "replace")
        best = max(seen, key=lambda one: (_drawn(one, key), one.name))
        return Choice(best.name, _unless_only(seen, "key"))


def _drawn(one: Seen, key: bytes) -> float:
    """The higher wins; a weight of 2 wins twice as often as one of 1."""
    name = one.name.encode("utf-8", "replace")
    digest = blake2b(key, digest_size=8, key=blake2b(name, digest_size=16).digest()).digest()
    share = (int.from_bytes(digest, "little") + 1) / (2**64 + 1)
    return -one.weight / math.log(share)


class CacheAware:
    """The worker that was given most of the prompt before, among those without too much to do.

    A prompt of which too little is known goes where there is least to do, and never to a worker
    because it has been given most: that would feed the one that is fed already. A worker is passed
    over for its own load alone, so a busy one takes nobody else's cache away.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._prefixes = Prefixes()
        self._turns = _Turns()
        self._last: tuple[Ask, Chain] | None = None

    def choose(self, ask: Ask, seen: Sequence[Seen]) -> Choice:
        """See the class."""
        chain, load = self._chain(ask), loads(seen)
        matched = {one.name: self._prefixes.matched(one.name, chain) for one in seen}
        if len(seen) == 1:
            return Choice(seen[0].name, "only", tokens_of(matched[seen[0].name]))
        enough = max(1.0, self._options.cache_threshold * len(chain))
        free = self._free(seen, load)
        most = max(matched[seen[place].name] for place in free)
        passed_over = max(matched.values()) > most and max(matched.values()) >= enough
        if most >= enough:
            free = [place for place in free if matched[seen[place].name] == most]
        taken = _least([seen[p] for p in free], [load[p] for p in free], self._turns)
        why: Why = "balance" if passed_over else "prefix" if most >= enough else "load"
        return Choice(taken.name, why, tokens_of(matched[taken.name]))

    def served(self, ask: Ask, name: str) -> None:
        """See Policy."""
        self._prefixes.keep(name, self._chain(ask))

    def forget(self, name: str) -> None:
        """See Policy."""
        self._prefixes.forget(name)

    def _free(self, seen: Sequence[Seen], load: Sequence[float]) -> list[int]:
        """Places of those that are not too far above the one with the least to do."""
        options, least = self._options, min(load)
        above, times = least + options.balance_abs, least * options.balance_rel
        return [place for place in range(len(seen)) if load[place] <= max(above, times)]

    def _chain(self, ask: Ask) -> Chain:
        """Made once for choosing, tries and serving."""
        if self._last is None or self._last[0] is not ask:
            self._last = (ask, chain_of(ask.model, ask.prompt))
        return self._last[1]


def _unless_only(seen: Sequence[Seen], why: Why) -> Why:
    return why if len(seen) > 1 else "only"


POLICIES: Mapping[str, Callable[[PolicyOptions], Policy]] = {
    "cache_aware": CacheAware,
    "least_load": LeastLoad,
    "power_of_two": PowerOfTwo,
    "round_robin": RoundRobin,
    "random": Random,
    "consistent": Consistent,
}
"""By the names of --policy."""


def policy_named(name: str, options: PolicyOptions | None = None) -> Policy:
    """A new policy. ConfigError for a name that is none."""
    if name not in POLICIES:
        raise ConfigError(f"--policy: {name!r} is none of {', '.join(POLICIES)}")
    return POLICIES[name](options or PolicyOptions())
