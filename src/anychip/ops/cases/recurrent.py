"""Cases of recurrent state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, apart, changed, draw, scaled, without


@dataclass(frozen=True)
class States:
    """A batch: per row how many tokens it brings and the position of the first one.

    moved: rows are read from one slot and written to another; otherwise each stays in its own.
    """

    tokens: tuple[int, ...]
    starts: tuple[int, ...]
    moved: bool = False

    @property
    def slots(self) -> int:
        """Slot 0, one or two a row, and a neighbour."""
        return 2 + len(self.tokens) * (1 + self.moved)


@dataclass(frozen=True)
class DeltaHeads:
    """Value heads, key heads, elements of a key and of a value."""

    value: int
    key: int
    key_dim: int
    value_dim: int


def state_batch(source: Draw, states: States) -> dict[str, Any]:
    """Index arguments: rows own shuffled slots, none of them slot 0."""
    rows = len(states.tokens)
    order = source.distinct(states.slots - 1, high=states.slots - 1) + 1
    spans = zip(states.tokens, states.starts, strict=True)
    positions = [np.arange(start, start + count) for count, start in spans]
    return {
        "state_from": order[:rows],
        "state_to": order[rows : 2 * rows] if states.moved else order[:rows].copy(),
        "cu_q": np.cumsum([0, *states.tokens]).astype(np.int32),
        "positions": np.concatenate(positions).astype(np.int32),
        "token_rows": np.repeat(np.arange(rows), states.tokens).astype(np.int32),
    }


def conv_inputs(
    source: Draw, states: States, channels: int, width: int, *, bias: bool = True
) -> dict[str, Any]:
    """Inputs of a convolution; the slots hold earlier inputs."""
    return {
        "x": source.normal(sum(states.tokens), channels),
        "weight": source.normal(channels, width, scale=width**-0.5),
        "bias": source.normal(channels, scale=0.5) if bias else None,
        "state": source.normal(states.slots, width - 1, channels),
        **state_batch(source, states),
    }


def delta_inputs(source: Draw, states: States, heads: DeltaHeads) -> dict[str, Any]:
    """Keys of length 1 or so, as a network norms them: with longer ones the state would grow."""
    tokens = sum(states.tokens)
    return {
        "q": source.normal(tokens, heads.key, heads.key_dim),
        "k": source.normal(tokens, heads.key, heads.key_dim, scale=heads.key_dim**-0.5),
        "v": source.normal(tokens, heads.value, heads.value_dim),
        "decay": source.uniform(tokens, heads.value, low=-1.5, high=0.0),
        "beta": source.uniform(tokens, heads.value),
        "state": source.normal(states.slots, heads.value, heads.key_dim, heads.value_dim),
        **state_batch(source, states),
    }


def unread(inputs: dict[str, Any]) -> dict[str, Any]:
    """NaN in every slot but those that a row which began earlier is read from."""
    first = inputs["cu_q"][:-1][np.diff(inputs["cu_q"]) > 0]
    rows = inputs["token_rows"][first]
    read = inputs["state_from"][rows[inputs["positions"][first] > 0]]
    state = np.full_like(inputs["state"], np.nan)
    state[read] = inputs["state"][read]
    return {**inputs, "state": state}


_BATCHES = (
    ("no tokens", States((0,), (5,))),
    ("one token", States((1,), (0,))),
    ("a start", States((11,), (0,))),
    ("decode", States((1, 1, 1), (1, 17, 40))),
    ("decode, moved", States((1, 1), (2, 16), moved=True)),
    ("a chunk", States((5,), (3,))),
    ("mixture", States((1, 7, 0, 16, 2), (31, 0, 3, 64, 1), moved=True)),
)


def causal_conv1d(op: str) -> list[Case]:
    """Starts, chunks, decode and mixtures; widths; slots that nobody may read."""
    source, cases = draw(op), list[Case]()
    for (name, states), channels, width in zip(
        _BATCHES, (8, 1, 20, 64, 33, 16, 24), (4, 2, 4, 4, 3, 5, 4), strict=True
    ):
        inputs = conv_inputs(source, states, channels, width)
        control = without("bias") if sum(states.tokens) else None
        cases.append(Case(op, name, inputs, {}, control))
    inputs = conv_inputs(source, _BATCHES[-1][1], 24, 4, bias=False)
    own = scaled(inputs, "weight")
    return [
        *cases,
        Case(op, "no bias, silu", inputs, {"activation": "silu"}, changed("activation", "none")),
        Case(op, "slots that are not read are NaN", unread(inputs), {}, own),
        Case(op, "rows apart", {**inputs, "x": apart(inputs["x"], 8)}, {}, own),
        Case(op, "another slot", inputs, {}, _another_slot(inputs)),
    ]


def gated_delta_rule(op: str) -> list[Case]:
    """Starts, chunks, decode and mixtures; shared keys; decays; slots that nobody may read."""
    source, cases = draw(op), list[Case]()
    for (name, states), heads in zip(
        _BATCHES,
        (
            *(DeltaHeads(2, 1, 8, 4), DeltaHeads(1, 1, 1, 1), DeltaHeads(2, 2, 16, 16)),
            *(DeltaHeads(4, 2, 32, 16), DeltaHeads(6, 2, 8, 20), DeltaHeads(3, 3, 20, 8)),
            DeltaHeads(4, 1, 16, 32),
        ),
        strict=True,
    ):
        inputs = delta_inputs(source, states, heads)
        control = scaled(inputs, "k") if sum(states.tokens) else None
        cases.append(Case(op, name, inputs, {"scale": heads.key_dim**-0.5}, control))
    inputs = delta_inputs(source, _BATCHES[-1][1], DeltaHeads(4, 2, 16, 8))
    base = {"scale": 0.25}
    apart_too = {name: apart(inputs[name], 8) for name in "qkv"}
    steep = {**inputs, "decay": inputs["decay"] * np.float32(40)}
    return [
        *cases,
        Case(op, "scale", inputs, base, changed("scale", 0.5)),
        Case(op, "slots that are not read are NaN", unread(inputs), base, scaled(inputs, "v")),
        Case(op, "rows apart", {**inputs, **apart_too}, base, scaled(inputs, "beta")),
        Case(op, "another slot", inputs, base, _another_slot(inputs)),
        Case(op, "steep decays", steep, base, changed("scale", 0.5)),
    ]


def _another_slot(inputs: dict[str, Any]) -> Control:
    return Control(
        "slots exchanged", {"state_from": np.ascontiguousarray(inputs["state_from"][::-1])}
    )


RECURRENT: dict[str, Callable[[str], list[Case]]] = {
    "causal_conv1d": causal_conv1d,
    "gated_delta_rule": gated_delta_rule,
}
