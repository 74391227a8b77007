"""A class that breaks the contract is refused when it is defined."""

from __future__ import annotations

import pytest

from anychip.contract.errors import ContractError
from anychip.contract.layer import Layer, empty_slots, optional, required, slots


class Door(Layer, contract=True):
    """A contract class of the tests."""

    height: int = 2

    @required
    def open(self, angle: int) -> None: ...

    @classmethod
    @required
    def make(cls, width: int) -> None: ...

    @optional
    def paint(self, *, colour: str) -> None: ...


class Good(Door):
    height = 3

    def open(self, angle):
        self._angle = angle

    @classmethod
    def make(cls, width): ...

    def _private(self): ...


def define(base=Door, abstract=False, **members):
    return type("Broken", (base,), members, abstract=abstract)


def refused(match, **arguments):
    with pytest.raises(ContractError, match=match):
        define(**arguments)


def test_slots_and_what_is_left_empty():
    assert slots(Good) == {"open": "required", "make": "required", "paint": "optional"}
    assert empty_slots(Good) == ("paint",)
    painted = define(Good, paint=lambda self, *, colour: None)
    assert empty_slots(painted) == ()


def test_missing_part_is_named():
    refused("required 'open' is missing; required 'make' is missing")


def test_unknown_name_is_named():
    refused("'opne' is not part of contract 0.5", base=Good, opne=lambda self, angle: None)


@pytest.mark.parametrize(
    "other",
    [
        lambda self: None,
        lambda self, corner: None,
        lambda self, angle, force: None,
        staticmethod(lambda angle: None),
    ],
)
def test_other_signature(other):
    refused(r"'open' takes \(.*\), the contract says \(self, angle\)", base=Good, open=other)


def test_keyword_only_is_part_of_the_signature():
    refused("'paint' takes", base=Good, paint=lambda self, colour: None)


def test_classmethods_on_both_sides():
    refused("'make' must be a classmethod", base=Good, make=lambda cls, width: None)
    refused("'open' must not be a class", base=Good, open=classmethod(lambda self, angle: None))


def test_a_value_in_the_place_of_a_method():
    refused("'open' must be a method", base=Good, open=None)
    refused("'open' must be a method", base=Good, open=property(lambda self: None))


def test_abstract_base_may_be_unfinished_and_its_child_not():
    base = define(abstract=True, open=lambda self, angle: None)
    refused("required 'make' is missing", base=base)
    assert define(base, make=classmethod(lambda cls, width: None))
    refused("'opne'", abstract=True, opne=1)
