"""How far rounding alone takes an operator from the oracle, measured: the composed path's error.

A limit by formula must guess how often a value is rounded and how much a function's slope makes
of that. The recipe, computed by hostops in the case's own dtype on the case's own values, has
made those roundings: a sound kernel lies within a small multiple of what it shows.
"""

from __future__ import annotations

import math

import numpy as np

from anychip.contract.dtype import DType
from anychip.ops.cases.case import Case
from anychip.ops.check import distance, outcome, result_dtype
from anychip.ops.limits import ATTENTIONS, EXACT, ROUNDOFF, terms
from anychip.ops.on_numpy import NumpyOps, run_on_numpy
from anychip.ops.oracle import CacheArrays
from anychip.ops.oracle.arrays import is_float, wide
from anychip.ops.oracle.scaled import read

MULTIPLE = 3.0
"""How many times the composed path's error a kernel may show."""

STEPS = 4
"""Float32 operations, each rounding once, that any kernel may take for one element."""


def composed_error(case: Case, ops: NumpyOps | None = None) -> float:
    """Worst relative L2 of the float results of the case's recipe against the oracle.

    A primitive is computed by hostops itself. Integers, bools and copies have no error: 0.
    ops: what computes the primitives, hostops where it is None.
    """
    found = run_on_numpy(case, ops)
    floats = {
        name: value
        for name, value in outcome(case.op, case.inputs, case.attrs).items()
        if isinstance(value, CacheArrays) or is_float(value)
    }
    return max((distance(value, found[name]) for name, value in floats.items()), default=0.0)


def error_limit(case: Case) -> float:
    """Largest relative L2 error of a sound implementation; 0 for operators that must be exact.

    MULTIPLE times the largest of: the composed path's error on this very case; one rounding of
    the dtype that results are held in; the roundings of float32 arithmetic, one for each term of
    a sum and at least STEPS, adding up as a random walk does, or those of the scores that a
    softmax raises to powers. The last two because the composed path may be lucky on a few
    numbers, and because hostops sums some primitives in float64 where the contract says float32,
    in any order.
    """
    if case.op in EXACT:
        return 0.0
    steps = max(STEPS, terms(case.op, case.inputs))
    accumulated = ROUNDOFF[DType.FLOAT32] * max(math.sqrt(steps), _powers(case))
    rounding = max(ROUNDOFF[result_dtype(case)], accumulated)
    return MULTIPLE * max(composed_error(case), rounding)


def _powers(case: Case) -> float:
    """Roundings of a typical score of attention: what is off by that much is, raised to a power
    of e, off by as large a part of itself."""
    if case.op not in ATTENTIONS or not case.inputs["q"].size:
        return 0.0
    q, keys = (read(a).astype(np.float64) for a in (case.inputs["q"], case.inputs["cache"].k))
    typical = math.sqrt(float(np.mean(q**2)) * float(np.nanmean(keys**2)))
    if "up" in case.inputs:  # keys are sums over what the cache holds
        up = wide(case.inputs["up"])
        typical *= math.sqrt(max(1.0, float(np.mean(up**2)) * up.shape[-1]))
    return float(abs(case.attrs["scale"]) * typical * q.shape[-1])
