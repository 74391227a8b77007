"""Sized cases of recurrent state."""

from __future__ import annotations

from anychip.ops.cases.draw import Draw
from anychip.ops.cases.grid_sizes import (
    FLAG,
    WIDTHS,
    Arrays,
    Dimension,
    Family,
    Sizes,
    grown,
    require,
)
from anychip.ops.cases.recurrent import DeltaHeads, States, conv_inputs, delta_inputs

_TOKENS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 1025)
_PAST = (0, 1, 2, 3, 4, 5, 100)
"""Tokens before the step: with few of them a part of the state lies before position 0."""

_DIMS = (1, 2, 7, 8, 9, 16, 20, 32, 33, 64, 80, 128)
_BATCH = (
    Dimension("T", 2, _TOKENS),
    Dimension("past", 5, _PAST),
    Dimension("B", 2, (1, 2, 3, 9)),
    Dimension("decoding", 0, (0, 1, 3)),
    Dimension("moved", 0, FLAG),
)
"""B sequences that bring T tokens each, behind `past` ones; `decoding` more that bring one each;
moved: states are written to other slots than they are read from."""


def _states(sizes: Sizes) -> States:
    tokens = (sizes["T"],) * sizes["B"] + (1,) * sizes["decoding"]
    require(len(tokens) > 0, "B + decoding = 0: a batch has at least one sequence")
    starts = (sizes["past"],) * sizes["B"] + (sizes["past"] + 7,) * sizes["decoding"]
    return States(tokens, starts, bool(sizes["moved"]))


def _conv(op: str, source: Draw, sizes: Sizes) -> Arrays:
    require(sizes["W"] > 1, f"{op}: W = {sizes['W']} must be 2 or more")
    states = _states(sizes)
    return conv_inputs(source, states, sizes["C"], sizes["W"], bias=bool(sizes["bias"]))


def _delta(op: str, source: Draw, sizes: Sizes) -> Arrays:
    heads = DeltaHeads(sizes["G"] * sizes["group"], sizes["G"], sizes["K"], sizes["V"])
    return delta_inputs(source, _states(sizes), heads)


RECURRENT: dict[str, Family] = {
    "causal_conv1d": Family(
        (
            *_BATCH,
            Dimension("C", 16, WIDTHS),
            Dimension("W", 4, (2, 3, 4, 5, 8)),
            Dimension("bias", 1, FLAG),
        ),
        _conv,
        grown("weight", over="x"),
        crossed=(
            {"T": 129, "past": 0, "B": 3, "decoding": 3, "C": 96},
            {"T": 2, "past": 1, "B": 9, "W": 8, "moved": 1},
            {"T": 1, "past": 3, "B": 33, "C": 1024},
        ),
    ),
    "gated_delta_rule": Family(
        (
            *_BATCH,
            Dimension("G", 2, (1, 2, 3, 9)),
            Dimension("group", 2, (1, 2, 3, 4)),
            Dimension("K", 16, _DIMS),
            Dimension("V", 16, _DIMS),
        ),
        _delta,
        grown("v"),
        lambda sizes: {"scale": sizes["K"] ** -0.5},
        (
            {"T": 33, "past": 0, "decoding": 3, "K": 128, "V": 128},
            {"T": 1, "past": 0, "B": 1, "G": 1, "group": 1, "K": 1, "V": 1},
            {"T": 3, "B": 9, "moved": 1, "K": 20, "V": 64},
        ),
    ),
}
