"""Binding, first half: which implementation serves a call. Decided before any memory exists.

Order: the user's choice (`--op name=impl`), native, composed, host (only when allowed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from anychip.contract.cache import KNOWN_LAYOUTS, NHD, CacheGroup, CacheSpec
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.operators import CallSpec, Implementation, ImplKind, OperatorTable
from anychip.contract.signature import Tier
from anychip.contract.weights import WeightSpec
from anychip.ops.compositions import COMPOSITIONS

NHD_RECIPES = ("kv_write", "paged_attention")
"""Whose recipe takes layout NHD alone. A chip with a layout of its own brings both natively, bound
jointly to it; recipes of other operators read every layout that the core knows."""


@dataclass(frozen=True)
class Decision:
    """Who serves a call, and why the ones before it do not. implementation None: the recipe."""

    implementation: Implementation | None
    why: tuple[str, ...] = ()

    @property
    def composed(self) -> bool:
        """Whether the recipe is traced in its place."""
        return self.implementation is None

    @property
    def name(self) -> str:
        """Implementation id, or "composed"."""
        return self.implementation.id if self.implementation else ImplKind.COMPOSED.value


class MissingOperator(ValueError):
    """Nothing covers a call: the start is refused."""

    def __init__(self, call: CallSpec, why: tuple[str, ...]) -> None:
        self.op, self.why = call.op, why
        shapes = ", ".join(f"{n} {d}" for n, d in call.dtypes().items())
        super().__init__(
            f"operator '{call.op}' {self.state} ({shapes}): {'; '.join(why)}. {self.way_out}"
        )

    state = "is missing"
    way_out = (
        "A chip must bring every primitive; --allow-host-ops computes missing ones on the host, "
        "slowly"
    )


class ChoiceDeclines(MissingOperator):
    """The implementation that `--op` chose does not cover a call."""

    state = "is not covered"
    way_out = "Leave that --op out, or change what it declines"


class UnknownImplementation(ValueError):
    """`--op` names an operator or an implementation that does not exist."""


@dataclass
class Decider:
    """Applies the order. host: implementations of the host rung, empty unless allowed."""

    table: OperatorTable
    choices: Mapping[str, str] = field(default_factory=dict)
    host: OperatorTable = field(default_factory=OperatorTable)
    denied: frozenset[str] = frozenset()  # operators whose native implementations are not used
    proved: frozenset[str] = frozenset()  # ids of guesses that were compared with the oracle
    _known: WeakKeyDictionary[CallSpec, Decision] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    def __post_init__(self) -> None:
        for op, choice in self.choices.items():
            self._check_choice(op, choice)

    def _check_choice(self, op: str, choice: str) -> None:
        if op not in CATALOGUE:
            raise UnknownImplementation(f"--op {op}={choice}: no operator '{op}' in the catalogue")
        offers = [i.id for i in self.table.of(op)]
        offers += [ImplKind.COMPOSED.value] if op in COMPOSITIONS else []
        offers += [i.id for i in self.host.of(op)]
        if choice not in offers:
            raise UnknownImplementation(
                f"--op {op}={choice}: '{op}' can be served by {', '.join(offers) or 'nothing'}"
            )

    def __call__(self, call: CallSpec) -> Decision:
        """Raises MissingOperator when nothing covers the call."""
        decision = self._known.get(call)
        if decision is None:
            decision = self._known[call] = self._decide(call)
        return decision

    def _decide(self, call: CallSpec) -> Decision:
        choice = self.choices.get(call.op)
        if choice is not None:
            return self._chosen(call, choice)
        why: list[str] = []
        native = () if call.op in self.denied else self.table.of(call.op)
        for implementation in native:
            reason = implementation.declines(call) or self._guess(implementation)
            if reason is None:
                return Decision(implementation, tuple(why))
            why.append(f"{implementation.id} declines: {reason}")
        if not native:
            why.append("no native implementation")
        reason = _recipe_declines(call)
        if reason is None:
            return Decision(None, tuple(why))
        return self._from_host(call, (*why, reason))

    def _guess(self, implementation: Implementation) -> str | None:
        """Why a guess is not bound; None where it is none, or was confirmed."""
        if not implementation.unproved or implementation.id in self.proved:
            return None
        guess = f"its call is a guess that nothing confirmed here ({implementation.assumed})"
        return f"{guess}; `anychip doctor` with --model-path compares it with the oracle"

    def _chosen(self, call: CallSpec, choice: str) -> Decision:
        if choice == ImplKind.COMPOSED.value:
            if reason := _recipe_declines(call):
                raise ChoiceDeclines(call, (f"--op chose {choice}: {reason}",))
            return Decision(None, ("chosen by --op",))
        offers = (*self.table.of(call.op), *self.host.of(call.op))
        implementation = next(i for i in offers if i.id == choice)
        reason = implementation.declines(call) or self._guess(implementation)
        if reason is not None:
            raise ChoiceDeclines(call, (f"--op chose {choice}, which declines: {reason}",))
        return Decision(implementation, ("chosen by --op",))

    def _from_host(self, call: CallSpec, why: tuple[str, ...]) -> Decision:
        for implementation in self.host.of(call.op):
            reason = implementation.declines(call)
            if reason is None:
                return Decision(implementation, why)
            why = (*why, f"{implementation.id} declines: {reason}")
        raise MissingOperator(call, why)


def _recipe_declines(call: CallSpec) -> str | None:
    if call.op not in COMPOSITIONS:
        return f"no recipe for '{call.op}' ({CATALOGUE[call.op].tier.value})"
    if CATALOGUE[call.op].tier is Tier.FUSED:
        return None
    for name, spec in call.inputs.items():
        if isinstance(spec, CacheSpec) and (reason := _unread(call.op, name, spec.group)):
            return reason
    packed = [n for n, s in call.inputs.items() if isinstance(s, WeightSpec) and not s.dense]
    if packed:
        return f"the recipe reads '{packed[0]}' as a plain tensor, the chip packs it"
    return None


def _unread(op: str, name: str, group: CacheGroup) -> str | None:
    """Why a recipe cannot read or write such a cache."""
    layouts = (NHD,) if op in NHD_RECIPES else KNOWN_LAYOUTS
    if group.layout not in layouts:
        known = " and ".join(layouts)
        return f"the recipe reads '{name}' in layout {known}, the chip's is {group.layout}"
    if group.scaled and op != "kv_copy_pages":
        return f"no primitive takes the scales of '{name}' in {group.dtype} apart"
    return None
