"""The kit proves itself: every defect is caught by the check that is there for it, no sound chip is
accused."""

from __future__ import annotations

import pytest

from anychip.conform.index import CHECKS
from anychip.conform.kit import LEVELS
from anychip.conform.proof import Check, Status, prove
from conform import defects_memory, defects_operators, defects_other, defects_vendor
from conform.defective import chip_with, subject_of

OPERATORS = {**defects_operators.DEFECTS, **defects_vendor.DEFECTS}
WRONG = {
    **{name: (chip_with(how), key) for name, (how, key) in OPERATORS.items()},
    **defects_memory.DEFECTS,
    **defects_other.DEFECTS,
}
BROKEN = ("AttributeError", "NameError", "TypeError", "UnboundLocalError")
CAUGHT_BY = {name: key for name, (_, key) in WRONG.items()}


def check_of(subject, key: str) -> Check:
    """The check of that key, as the kit lists it for this chip."""
    level = CHECKS[key.split()[0]][0]
    return next(c for c in LEVELS[level](subject) if c.key == key)


@pytest.mark.parametrize("name", WRONG)
def test_defect_is_caught(name: str) -> None:
    cls, key = WRONG[name]
    subject = subject_of(cls)
    try:
        proof = prove(check_of(subject, key), subject)
    finally:
        subject.close()
    assert proof.status is Status.FAIL, proof
    assert not any(word in proof.text for word in BROKEN), "the defect itself does not run"


def test_missing_primitive_is_missing_and_never_a_skip() -> None:
    subject = subject_of(defects_other.FakeChip, without="exp")
    proof = prove(check_of(subject, "R1 exp"), subject)
    assert proof.status is Status.MISSING and "exp" in proof.text
    proof = prove(check_of(subject, "R1 silu"), subject)
    subject.close()
    assert proof.status is Status.PASS


ASKED = [("fake", key) for key in sorted(set(CAUGHT_BY.values()))]
ASKED += [("takes q8_0", "O12 linear"), ("captures", "G1")]


@pytest.mark.parametrize(("name", "key"), ASKED)
def test_the_same_checks_do_not_accuse_a_sound_chip(name: str, key: str) -> None:
    subject = subject_of(defects_other.SOUND[name])
    try:
        proof = prove(check_of(subject, key), subject)
    finally:
        subject.close()
    assert proof.status in (Status.PASS, Status.UNSUPPORTED), proof


def test_there_are_many_defects_of_every_level() -> None:
    levels = {CHECKS[key.split()[0]][0] for key in CAUGHT_BY.values()}
    assert len(WRONG) >= 55
    assert levels == set(LEVELS)
