"""The recording interpreter: what a program asks of a chip and who would serve it. No device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import Call, CallSpec, Implementation, Launch
from anychip.ops.decide import Decision, MissingOperator

MISSING = "missing"


@dataclass(frozen=True)
class Served:
    """One operator as one implementation serves it. kind: native, composed, host or missing.

    calls: in all programs recorded. why: reasons of those asked before.
    """

    op: str
    tier: str
    kind: str
    implementation: str
    calls: int
    why: tuple[str, ...]


def _never(call: Call) -> Launch:
    raise MissingOperator(call.spec, ("recorded as missing",))


@dataclass
class Recorder:
    """Wraps a decider and goes on where an operator is missing, so that all are found."""

    decide: Callable[[CallSpec], Decision]
    _counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _why: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    errors: list[MissingOperator] = field(default_factory=list)

    def __call__(self, call: CallSpec) -> Decision:
        """The decision, noted."""
        try:
            decision = self.decide(call)
        except MissingOperator as error:
            if error.op not in {e.op for e in self.errors}:
                self.errors.append(error)
            self._note((call.op, MISSING, MISSING), error.why)
            return Decision(Implementation(op=call.op, id=MISSING, prepare=_never), error.why)
        kind = decision.implementation.kind.value if decision.implementation else "composed"
        self._note((call.op, kind, decision.name), decision.why)
        return decision

    def _note(self, key: tuple[str, str, str], why: tuple[str, ...]) -> None:
        self._counts[key] += 1
        self._why.setdefault(key, why)

    def served(self) -> list[Served]:
        """One row an operator and implementation, in the order of the catalogue."""
        order = {name: i for i, name in enumerate(CATALOGUE)}
        keys = sorted(self._counts, key=lambda k: (order[k[0]], k[1:]))
        return [
            Served(op, CATALOGUE[op].tier.value, kind, name, self._counts[key], self._why[key])
            for key in keys
            for op, kind, name in [key]
        ]

    @property
    def missing(self) -> list[str]:
        """Operators that nothing covers."""
        return [error.op for error in self.errors]
