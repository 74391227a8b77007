"""How a defective chip is made: the fake chip with one thing done wrong.

`chip_with(...)` gives a class; the kit opens it as it opens any other. A defect changes what a call
asks for (`other_attrs`), what its kernel leaves behind (`afterwards`), or a part of the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anychip.chips.fake.registration import FakeChip
from anychip.conform.subject import Subject
from anychip.contract.operators import Call, Implementation, Launch, OperatorTable
from anychip.contract.registration import read_options

Change = Callable[[FakeChip, Implementation], Implementation]
"""An implementation in place of the sound one."""


def chip_with(changes: Mapping[str, Change], base: type[FakeChip] = FakeChip) -> type[FakeChip]:
    """A chip whose operators of these names are changed."""

    class Defective(base):
        def __init__(self, values: Mapping[str, Any]) -> None:
            super().__init__(values)
            table = self.operators.implementations
            changed = [changes[i.op](self, i) if i.op in changes else i for i in table]
            self.operators = OperatorTable(tuple(changed))

    return Defective


def subject_of(cls: type[FakeChip], **options: str) -> Subject:
    """What the kit is given."""
    given = {"memory": "512M", **options}
    return Subject(cls, 0, read_options(cls, given))


def other_attrs(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Change:
    """The kernel runs with other attributes than it was asked for."""

    def changed(chip: FakeChip, impl: Implementation) -> Implementation:
        def prepare(call: Call) -> Launch:
            attrs = {**call.attrs, **change(dict(call.attrs))}
            return impl.prepare(replace(call, spec=replace(call.spec, attrs=attrs)))

        return replace(impl, prepare=prepare)

    return changed


def without_input(name: str) -> Change:
    """The kernel never looks at an optional input."""

    def changed(chip: FakeChip, impl: Implementation) -> Implementation:
        def prepare(call: Call) -> Launch:
            spec = replace(call.spec, inputs={**call.spec.inputs, name: None})
            return impl.prepare(replace(call, spec=spec, inputs={**call.inputs, name: None}))

        return replace(impl, prepare=prepare)

    return changed


def afterwards(spoil: Callable[[FakeChip, Call], None]) -> Change:
    """The kernel runs, then something more happens to the device's memory."""
    return around(lambda chip, call: None, lambda chip, call, _: spoil(chip, call))


def around(
    before: Callable[[FakeChip, Call], Any], after: Callable[[FakeChip, Call, Any], None]
) -> Change:
    """Look at the device's memory before the kernel runs, change it behind it; in queue order."""

    def changed(chip: FakeChip, impl: Implementation) -> Implementation:
        def prepare(call: Call) -> Launch:
            sound, seen = impl.prepare(call), []

            def launch() -> None:
                chip.memory._put(impl.op, lambda: seen.append(before(chip, call)))
                sound()
                chip.memory._put(impl.op, lambda: after(chip, call, seen.pop()))

            return launch

        return replace(impl, prepare=prepare)

    return changed


def elements(chip: FakeChip, call: Call, name: str) -> np.ndarray:
    """A tensor argument's elements on the device."""
    value = call.outputs[name] if name in call.outputs else call.inputs[name]
    return chip._store.array(value)


def on_output(name: str, spoil: Callable[[np.ndarray], None]) -> Change:
    """Change an output in place once it is computed."""
    return afterwards(lambda chip, call: spoil(elements(chip, call, name)))
