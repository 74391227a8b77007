"""Which operator's implementation changes the text: one chip against another, by borrowing.

The model runs on a chip with some operators computed by the reference chip. The smallest set of
these with which the text is the reference's is the set that changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import ImplKind
from anychip.contract.signature import Tier
from anychip.contract.weights import Weight, WeightSpec
from anychip.engine.loaded import Answer, LoadedModel, answer
from anychip.engine.narrow import smallest_set
from anychip.ops.borrowed import Borrowing, Lender, Pieces, WeightPairs
from anychip.ops.decide import Decider, MissingOperator
from anychip.run.model_plan import Decide, trace_step
from anychip.run.sizes import Sizes

Report = Callable[[str], None]


class CannotJudge(RuntimeError):
    """The two chips cannot be compared operator by operator; the text says why, and what to do."""


@dataclass(frozen=True)
class Culprit:
    """An operator that changes the text. implementations: ids on the chip, or "composed"."""

    op: str
    implementations: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} ({', '.join(self.implementations)})"


@dataclass(frozen=True)
class Search:
    """What was found. culprits: empty where the difference is in no operator.

    notes: what was seen when a culprit was looked into. trials: runs of the model.
    """

    culprits: tuple[Culprit, ...]
    notes: tuple[str, ...]
    trials: int


@dataclass
class Bisection:
    """One model on two chips, and one prompt. `wanted` is the reference's answer to it."""

    own: LoadedModel
    reference: LoadedModel
    prompt: Sequence[int]
    wanted: Sequence[int]
    report: Report
    _known: dict[tuple[frozenset[str], frozenset[str]], bool] = field(default_factory=dict)

    def search(self) -> Search:
        """Find the culprits. The two answers differ. Raises CannotJudge, ChipError."""
        pieces = self._pieces(frozenset())
        names = [op for op in pieces.served if op not in pieces.kept]
        self.report(f"operators to compare: {', '.join(names)}")
        if not self._same(frozenset(names), frozenset()):
            if pieces.kept:
                raise CannotJudge(_kept(pieces))
            return Search((), (), len(self._known))
        culprits = self._smallest(pieces, names, frozenset())
        return self._look_into(Search(culprits, (), 0), frozenset())

    def _look_into(self, found: Search, opened: frozenset[str]) -> Search:
        """Go on with the parts of culprits that have parts."""
        inner = {c.op for c in found.culprits if _has_parts(c)} - opened
        if not inner:
            return replace(found, trials=len(self._known))
        names = ", ".join(sorted(inner))
        self.report(f"looking into {names}")
        try:
            smaller, note = self._parts(names, opened | inner)
        except MissingOperator as error:
            smaller, note = (), f"{names} cannot be looked into: {error}"
        if not smaller:
            return Search(found.culprits, (*found.notes, note), len(self._known))
        note = f"part of {', '.join(map(str, found.culprits))}"
        return self._look_into(Search(smaller, (*found.notes, note), 0), opened | inner)

    def _parts(self, names: str, opened: frozenset[str]) -> tuple[tuple[Culprit, ...], str]:
        """Culprits among the parts of `opened`, or none and why. Raises MissingOperator."""
        if self._same(frozenset(), opened):
            return (), f"composed of smaller operators, {names} gives the reference's text"
        pieces = self._pieces(opened)
        parts = [op for op in pieces.served if op not in pieces.kept]
        if not self._same(frozenset(parts), opened):
            return (), (
                f"the parts of {names} are not it: with all of them from the reference the text "
                "still differs, so it is how they are put together"
            )
        return self._smallest(pieces, parts, opened), ""

    def _smallest(
        self, pieces: Pieces, names: Sequence[str], opened: frozenset[str]
    ) -> tuple[Culprit, ...]:
        found = smallest_set(names, lambda some: self._same(some, opened))
        return tuple(Culprit(op, tuple(pieces.served[op])) for op in found)

    def _same(self, borrowed: frozenset[str], opened: frozenset[str]) -> bool:
        """Whether the text is the reference's with these operators from the reference."""
        key = (borrowed, opened)
        if key not in self._known:
            with self._lender() as lender:
                own = self._own(opened)
                found = self._answer(Borrowing(own, lender, borrowed)).tokens
            self._known[key] = found == list(self.wanted)
            self.report(f"trial {len(self._known)}: {_told(borrowed)}: {self._outcome(found)}")
        return self._known[key]

    def _answer(self, decide: Decide) -> Answer:
        """The chip's own answer, up to the first token that is not the reference's."""
        with self.own.session(decide) as session:
            return answer(session, self.prompt, len(self.wanted), goes_on=self._agrees)

    def _agrees(self, found: Answer) -> bool:
        return found.tokens == list(self.wanted[: len(found.tokens)])

    def _outcome(self, found: Sequence[int]) -> str:
        first = first_difference(found, self.wanted)
        return "the reference's text" if first is None else f"differs at token {first}"

    def _own(self, opened: frozenset[str]) -> Decider:
        decider = self.own.opened.decider
        choices = {op: choice for op, choice in decider.choices.items() if op not in opened}
        return replace(decider, choices=choices, denied=decider.denied | opened)

    def _pieces(self, opened: frozenset[str]) -> Pieces:
        """Every piece of a prefill and of a decode step."""
        opened_model = self.own.opened
        tokens = min(opened_model.chunk, len(self.prompt))
        most = opened_model.plan.most_pages
        with self._lender() as lender:
            pieces = Pieces(self._own(opened), lender, opened)
            for count in {tokens, 1}:
                trace_step(opened_model.plan, Sizes(count, 1, 1, most), 2, pieces)
        return pieces

    @contextmanager
    def _lender(self) -> Iterator[Lender]:
        other, near = self.reference.opened, self.own.opened.chip.memory
        lender = Lender(other.chip, other.decider, near, self._weight_pairs())
        try:
            yield lender
        finally:
            lender.release()

    def _weight_pairs(self) -> WeightPairs:
        names = {id(w): name for name, w in self.own.weights.weights.items()}
        theirs = self.reference.weights.weights
        specs: dict[WeightSpec, dict[WeightSpec, None]] = {}
        for name, weight in self.own.weights.weights.items():
            specs.setdefault(weight.spec, {})[theirs[name].spec] = None

        def weight_of(weight: Weight) -> Weight:
            return theirs[names[id(weight)]]

        return WeightPairs(weight_of, lambda spec: tuple(specs[spec]))


def first_difference(found: Sequence[int], wanted: Sequence[int]) -> int | None:
    """Index of the first token that differs, or that only one of them has; None: they are equal."""
    for index, pair in enumerate(zip_longest(found, wanted)):
        if pair[0] != pair[1]:
            return index
    return None


def _has_parts(culprit: Culprit) -> bool:
    is_fused = CATALOGUE[culprit.op].tier is Tier.FUSED
    return is_fused or ImplKind.COMPOSED.value in culprit.implementations


def _told(borrowed: frozenset[str]) -> str:
    return f"{', '.join(sorted(borrowed)) or 'nothing'} from the reference"


def _kept(pieces: Pieces) -> str:
    reasons = "; ".join(f"{op}: {reason}" for op, reason in pieces.kept.items())
    return (
        f"the text differs also with every operator from the reference that it can lend; it cannot "
        f"lend {reasons}"
    )
