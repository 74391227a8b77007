"""Conformance of the operators: every check of the level, by operator, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from anychip.conform.index import CHECKS
from anychip.conform.operator_cache import written_is_read
from anychip.conform.operator_far_memory import OFFSETS, far_offsets
from anychip.conform.operator_indices import device_half, index_arguments
from anychip.conform.operator_launches import every_element, stays_on_device, the_same_again
from anychip.conform.operator_options import options_matter, options_of
from anychip.conform.operator_results import noticed, right, with_outliers
from anychip.conform.operator_sampling import follows_distribution
from anychip.conform.operator_served import served
from anychip.conform.operator_weights import SIZES, weights_kept
from anychip.conform.operator_workspace import scratch
from anychip.conform.proof import Check, Level, Proof
from anychip.conform.subject import Subject
from anychip.contract.catalogue import CATALOGUE

Run = Callable[[Subject], Proof]

BY_OPERATOR: Mapping[str, tuple[Callable[[str], Run], Collection[str]]] = {
    "R1": (served, tuple(CATALOGUE)),
    "O1": (right, tuple(CATALOGUE)),
    "O2": (noticed, tuple(CATALOGUE)),
    "O3": (options_matter, tuple(op for op in CATALOGUE if options_of(op))),
    "O5": (every_element, tuple(CATALOGUE)),
    "O6": (stays_on_device, tuple(CATALOGUE)),
    "O7": (the_same_again, tuple(CATALOGUE)),
    "O8": (device_half, tuple(op for op in CATALOGUE if index_arguments(op))),
    "O9": (far_offsets, OFFSETS),
    "O10": (with_outliers, tuple(CATALOGUE)),
    "O11": (scratch, tuple(CATALOGUE)),
    "O12": (weights_kept, tuple(SIZES)),
}
"""Id -> what makes its check for an operator, and the operators that it asks about."""

JOINT: Mapping[str, tuple[str, Run]] = {
    "O4": ("cache", written_is_read),
    "S1": ("sample", follows_distribution),
}
"""Id -> subject and check, where one check looks at several operators, or at one alone."""


def checks(subject: Subject) -> list[Check]:
    """Every check of the level: ids in the index's order, operators in the catalogue's.

    The list depends on nothing but the catalogue; the device is not opened.
    """
    found: list[Check] = []
    for id, (level, _) in CHECKS.items():
        if level is not Level.OPERATORS:
            continue
        if id in JOINT:
            name, run = JOINT[id]
            found.append(Check(id, level, run, name))
            continue
        make, ops = BY_OPERATOR[id]
        found += [Check(id, level, make(op), op) for op in CATALOGUE if op in ops]
    return found
