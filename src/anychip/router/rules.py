"""Routing by what a call asks for: `--rule 'prompt_tokens>4096 & stream=true: big, @slow'`.

A rule is conditions, a colon, and workers: names, or @tag for all that have the tag. The first
rule that a call meets says which workers may answer it; a call that meets none may go to all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anychip.flags import LARGEST, ConfigError

from .asking import ROUTED, Ask

Fallback = Literal["refuse", "any"]
"""What becomes of a call whose rule's workers cannot be asked: 503 that names the rule, or any."""

_CONDITION = re.compile(r"\s*(\w+)\s*(>=|<=|!=|>|<|=)\s*(\S+)\s*")
_TARGETS = re.compile(r":\s+(?!.*:\s)|:(?=[^:]*$)", re.DOTALL)
_NUMBERS = {"prompt_tokens": 0, "max_tokens": 0, "choices": 1}
"""With the smallest that a call can have."""
_WORDS = ("model", "path", "stream")
_MAY_LACK = "max_tokens"
_FORM = "'CONDITION [& CONDITION ...]: WORKER[, WORKER ...]'"


class Span(NamedTuple):
    """Numbers from low to high, both included."""

    low: int
    high: int = LARGEST

    def within(self, other: Span) -> bool:
        """Whether the other has all of it."""
        return other.low <= self.low and self.high <= other.high


@dataclass(frozen=True)
class Words:
    """What a word must be, or None; and what it must not be."""

    same: str | None = None
    other: frozenset[str] = frozenset()

    def holds(self, word: str | None) -> bool:
        """Whether this word is one of them."""
        return word not in self.other if self.same is None else word == self.same

    def within(self, outer: Words) -> bool:
        """Whether the outer one has all of these."""
        if outer.same is not None:
            return self.same == outer.same
        return self.same not in outer.other if self.same is not None else outer.other <= self.other


@dataclass(frozen=True)
class Rule:
    """One --rule. text: as it was given. targets: names of workers, and @tags."""

    text: str
    numbers: Mapping[str, Span]
    words: Mapping[str, Words]
    targets: tuple[str, ...]

    def meets(self, ask: Ask) -> bool:
        """Whether it is for this call. A call without max_tokens meets no condition on it."""
        for name, span in self.numbers.items():
            number = getattr(ask, name)
            if number is None or not span.low <= number <= span.high:
                return False
        given = {"model": ask.model, "path": ask.path, "stream": str(ask.stream).lower()}
        return all(words.holds(given[name]) for name, words in self.words.items())

    def covers(self, other: Rule) -> bool:
        """Whether each call that meets the other meets this one."""
        for name, span in self.numbers.items():
            whole = None if name == _MAY_LACK else Span(_NUMBERS[name])
            theirs = other.numbers.get(name, whole)
            if theirs is None or not theirs.within(span):
                return False
        return all(
            other.words.get(name, Words()).within(words) for name, words in self.words.items()
        )

    def workers(self, tags: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Those that it names, directly or by a tag. tags: of each worker, by its name."""
        wanted = {target[1:] for target in self.targets if target.startswith("@")}
        tagged = {name for name, has in tags.items() if not wanted.isdisjoint(has)}
        return frozenset(self.targets) | tagged


class Narrowed(NamedTuple):
    """Who may answer a call. names: in the order given; none where its rule's are all away.

    rule: the first that it meets. fell_back: others than the rule's are taken.
    """

    names: tuple[str, ...]
    rule: Rule | None = None
    fell_back: bool = False


def parse_rule(text: str) -> Rule:
    """One --rule. ConfigError for what is none, or no call can meet."""
    parts = _TARGETS.split(text, maxsplit=1)
    if len(parts) != 2:
        raise _refused(text, f"is no rule: {_FORM}")
    targets = tuple(parts[1].replace(",", " ").split())
    if not targets or "@" in targets:
        raise _refused(text, f"names no worker behind the colon: {_FORM}")
    numbers: dict[str, Span] = {}
    words: dict[str, Words] = {}
    for condition in parts[0].split("&"):
        found = _CONDITION.fullmatch(condition)
        if found is None:
            raise _refused(text, f"{condition.strip()!r} is no condition such as choices>1")
        name, sign, value = found.groups()
        if name in _NUMBERS:
            numbers[name] = _narrower(text, numbers.get(name), (name, sign, value))
        elif name in _WORDS:
            words[name] = _more_words(text, words.get(name, Words()), (name, sign, value))
        else:
            known = ", ".join((*_NUMBERS, *_WORDS))
            raise _refused(text, f"calls have no {name!r}; conditions are about {known}")
    return Rule(text, numbers, words, targets)


def check_rules(rules: Sequence[Rule], workers: Mapping[str, Collection[str]]) -> None:
    """ConfigError for a worker or tag that nobody has, and for a rule that is never reached.

    workers: the tags of each, by its name.
    """
    tags = {tag for has in workers.values() for tag in has}
    for place, rule in enumerate(rules):
        for target in rule.targets:
            if target.startswith("@") and target[1:] not in tags:
                known = ", ".join(sorted(tags)) or "none"
                raise _refused(rule.text, f"no worker has the tag {target[1:]!r}; tags: {known}")
            if not target.startswith("@") and target not in workers:
                known = ", ".join(workers)
                raise _refused(rule.text, f"there is no worker {target!r}; workers: {known}")
        earlier = next((one for one in rules[:place] if one.covers(rule)), None)
        if earlier is not None:
            text = f"never applies: {earlier.text!r} before it takes every call that it is for"
            raise _refused(rule.text, f"{text}; put it first, or leave it out")


def first_met(rules: Iterable[Rule], ask: Ask) -> Rule | None:
    """The rule that says where this call may go; None: none does."""
    return next((rule for rule in rules if rule.meets(ask)), None)


def allowed(
    rules: Iterable[Rule],
    ask: Ask,
    names: Sequence[str],
    tags: Mapping[str, Collection[str]] | None = None,
) -> tuple[str, ...]:
    """Of `names`, those that the call's rule gives; all where it meets none."""
    return narrowed(rules, ask, names, tags).names


def narrowed(
    rules: Iterable[Rule],
    ask: Ask,
    names: Sequence[str],
    tags: Mapping[str, Collection[str]] | None = None,
    fallback: Fallback = "refuse",
) -> Narrowed:
    """Which of `names`, workers that could be asked now, may answer the call.

    With the fallback "any" a call whose rule gives none of them may go to all of them.
    """
    rule = first_met(rules, ask)
    if rule is None:
        return Narrowed(tuple(names))
    given = rule.workers(tags or {})
    left = tuple(name for name in names if name in given)
    if not left and names and fallback == "any":
        return Narrowed(tuple(names), rule, fell_back=True)
    return Narrowed(left, rule)


def _narrower(text: str, before: Span | None, condition: tuple[str, str, str]) -> Span:
    name, sign, value = condition
    told = "".join(condition)
    if not (value.isascii() and value.isdigit()) or int(value) > LARGEST:
        raise _refused(text, f"{told}: {value!r} is no whole number from 0 to {LARGEST}")
    number = int(value)
    spans = {
        ">": Span(number + 1),
        ">=": Span(number),
        "<": Span(0, number - 1),
        "<=": Span(0, number),
        "=": Span(number, number),
    }
    if sign not in spans:
        raise _refused(text, f"{told}: numbers are compared with {' '.join(spans)}")
    more, whole = spans[sign], before or Span(_NUMBERS[name])
    both = Span(max(more.low, whole.low), min(more.high, whole.high))
    if both.low > both.high:
        raise _refused(text, f"never applies: no call can meet {told} and the conditions before it")
    return both


def _more_words(text: str, before: Words, condition: tuple[str, str, str]) -> Words:
    name, sign, value = condition
    told = "".join(condition)
    if sign not in ("=", "!="):
        raise _refused(text, f"{told}: {name} is compared with = or !=")
    if name == "stream":
        if value not in ("true", "false"):
            raise _refused(text, f"{told}: {value!r} is neither true nor false")
        if sign == "!=":
            sign, value = "=", "false" if value == "true" else "true"
    if name == "path" and value not in ROUTED:
        raise _refused(
            text, f"{told}: calls of {value!r} are not passed on; {', '.join(ROUTED)} are"
        )
    same = value if sign == "=" else before.same
    other = before.other | ({value} if sign == "!=" else set())
    if same in other or before.same not in (None, same):
        raise _refused(text, f"never applies: no call can meet {told} and the conditions before it")
    return Words(same, other)


def _refused(text: str, why: str) -> ConfigError:
    return ConfigError(f"--rule: {text!r}: {why}")
