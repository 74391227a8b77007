"""Cases of what surrounds a draw: masks, sparse changes of logits, log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anychip.ops.cases.case import Case, Control
from anychip.ops.cases.draw import Draw, draw
from anychip.ops.oracle.arrays import Array

WORDS = (-(2**31), 2**31)
"""Every int32, low and high."""


def mask_of(source: Draw, rows: int, size: int) -> Array:
    """[rows, ceil(size / 32)] of random bits."""
    return source.integers(rows, -(-size // 32), low=WORDS[0], high=WORDS[1])


def mask_logits(op: str) -> list[Case]:
    """Every bit of a word alone, words that round badly, rows of one kind, ends within a word."""
    source = draw(op)
    single = np.left_shift(np.int64(1), np.arange(32)).astype(np.uint32).view(np.int32)
    near = single.view(np.uint32) - np.uint32(1)
    found = [
        _masked(op, f"{rows}x{size}", source, mask_of(source, rows, size), size)
        for rows, size in ((0, 33), (3, 1), (4, 31), (4, 32), (4, 33), (3, 1000))
    ]
    return [
        *found,
        _masked(op, "one bit each", source, single[:, None], 32),
        _masked(op, "all but one bit each", source, ~single[:, None], 32),
        _masked(op, "all lower bits", source, near.view(np.int32)[:, None], 32),
        _masked(op, "all and none", source, np.array([[-1] * 3, [0] * 3], np.int32), 70),
        _with_special(op, source),
    ]


def _masked(op: str, name: str, source: Draw, mask: Array, size: int) -> Case:
    inputs = {"logits": source.normal(len(mask), size), "mask": mask}
    control = Control("every other bit", {"mask": ~mask}) if mask.size else None
    return Case(op, name, inputs, {}, control)


def _with_special(op: str, source: Draw) -> Case:
    """What is ruled out is no number's business: NaN and infinities stay where they are allowed."""
    case = _masked(op, "NaN and infinities", source, mask_of(source, 3, 65), 65)
    case.inputs["logits"][:, ::5] = np.nan
    case.inputs["logits"][:, 1::5], case.inputs["logits"][:, 2::5] = np.inf, -np.inf
    return case


def entries(source: Draw, rows: int, size: int, count: int, padding: int = 0) -> dict[str, Any]:
    """Up to `count` entries of different elements, shuffled, the rest and `padding` more unused."""
    used = min(count, rows * size)
    places = np.full(count + padding, -1, np.int32)
    places[:used] = source.distinct(used, high=rows * size)
    repetition = source.uniform(len(places), low=1.05, high=1.6)
    bias = source.normal(len(places))
    used_rows = np.where(places >= 0, places // max(size, 1), -1).astype(np.int32)
    ids = np.where(places >= 0, places % max(size, 1), 0).astype(np.int32)
    return {"rows": used_rows, "ids": ids, "repetition": repetition, "bias": bias}


def adjust_logits(op: str) -> list[Case]:
    """Each number alone, bans, padding between entries, no entry at all."""
    source = draw(op)
    logits = {"logits": source.normal(4, 65, scale=3)}
    given = {**logits, **entries(source, 4, 65, 40, padding=8)}
    order = np.argsort(source.uniform(48))
    mixed = {**logits, **{n: given[n][order] for n in ("rows", "ids", "repetition", "bias")}}
    alone = {**given, "repetition": np.ones_like(given["repetition"])}
    plain = {**given, "bias": np.zeros_like(given["bias"])}
    banned = {**given, "bias": np.where(np.arange(48) % 2, given["bias"], -np.inf)}
    banned["bias"] = banned["bias"].astype(np.float32)
    every = {"logits": source.normal(3, 33), **entries(source, 3, 33, 99)}
    none = {"logits": source.normal(3, 33), **entries(source, 3, 33, 0)}
    unused = {**none, **entries(source, 3, 33, 0, padding=4)}
    return [
        _adjusted(op, "bias alone", alone, bias=-given["bias"]),
        _adjusted(op, "repetition alone", plain, repetition=1 / given["repetition"]),
        _adjusted(op, "padding between", mixed, rows=mixed["rows"][::-1].copy()),
        _adjusted(op, "banned", banned, ids=(given["ids"] + 1) % 65),
        _adjusted(op, "every logit", every, bias=-every["bias"]),
        _adjusted(op, "no entry", none, logits=-none["logits"]),
        _adjusted(op, "padding alone", unused, logits=-unused["logits"]),
        Case(op, "no rows", {"logits": source.normal(0, 5), **entries(source, 0, 5, 3)}),
        _unusual(op, source),
    ]


def _adjusted(op: str, name: str, inputs: dict[str, Any], **other: Any) -> Case:
    return Case(op, name, inputs, {}, Control(f"another {', '.join(other)}", other))


def _unusual(op: str, source: Draw) -> Case:
    """Logits of 0, NaN and infinities; a ban of each."""
    logits = np.tile(np.array([0, np.nan, np.inf, -np.inf, 2, -2], np.float32), (3, 1))
    rows, ids = (a.reshape(-1).astype(np.int32) for a in np.indices((2, 6)))
    bias = np.where(rows == 0, -np.inf, 0.5).astype(np.float32)
    inputs = {"logits": logits, "rows": rows, "ids": ids, "bias": bias}
    inputs["repetition"] = source.uniform(12, low=1.2, high=1.6)
    return _adjusted(op, "unusual logits", inputs, rows=rows[::-1].copy())


def tokens_of(source: Draw, rows: int, size: int) -> dict[str, Any]:
    """Sampled and given tokens; every other row has none given."""
    given = source.integers(rows, high=size)
    given[1::2] = -1
    return {"sampled": source.integers(rows, high=size), "given": given}


def token_logprobs(op: str) -> list[Case]:
    """Given and sampled tokens, ids below 0, ties, a nearly certain token, NaN, broken rows."""
    source = draw(op)
    found = []
    for rows, size, scale in ((0, 5, 1.0), (5, 33, 3.0), (6, 1000, 10.0)):
        inputs = {"logits": source.normal(rows, size, scale=scale), **tokens_of(source, rows, size)}
        found.append(_logged(op, f"{rows}x{size}", inputs))
    tied = {"logits": source.integers(9, 65, high=3).astype(np.float32), **tokens_of(source, 9, 65)}
    nobody = {**tied, "given": np.full(9, -1, np.int32)}
    nobody["sampled"] = np.where(np.arange(9) % 3, tied["sampled"], -1).astype(np.int32)
    sure = {"logits": source.normal(4, 65), **tokens_of(source, 4, 65)}
    sure["logits"][:, 7], sure["given"] = 12, np.array([7, -1, 7, -1], np.int32)
    sure["sampled"] = np.array([0, 7, 3, 8], np.int32)
    one = {"logits": source.normal(2, 1), **tokens_of(source, 2, 1)}
    return [
        *found,
        _logged(op, "ties", tied),
        _logged(op, "no token", nobody),
        _logged(op, "nearly certain", sure),
        _logged(op, "broken rows", {"logits": broken(source), **tokens_of(source, 6, 65)}),
        Case(op, "one token", one),
    ]


def _logged(op: str, name: str, inputs: dict[str, Any]) -> Case:
    return Case(op, name, inputs, {}, negated_logits(inputs))


def negated_logits(inputs: dict[str, Any]) -> Control | None:
    """A control; None where there are no logits."""
    x = inputs["logits"]
    return Control("logits negated", {"logits": -x}) if x.size else None


def broken(source: Draw) -> Array:
    """[6, 65]: NaN among numbers (twice), all NaN, all -inf, a +inf, most ruled out."""
    logits = source.normal(6, 65, scale=3)
    logits[0, ::3], logits[1, 1:] = np.nan, np.nan
    logits[2], logits[3], logits[4, 7] = np.nan, -np.inf, np.inf
    logits[5, 2:] = -np.inf
    return logits


def top_logprobs(op: str) -> list[Case]:
    """From one to all, ties across the last place, zeros of both signs, NaN, broken rows."""
    source = draw(op)
    sure = source.normal(4, 65)
    sure[:, 7] = 12
    tied = source.integers(9, 65, high=3).astype(np.float32)
    zeros = np.where(tied == 1, -0.0, np.where(tied == 2, 0.0, -1.0)).astype(np.float32)
    sizes = ((0, 5, 3), (3, 33, 1), (3, 65, 20), (4, 40, 40), (2, 5000, 20))
    found = [
        _listed(op, f"{rows}x{size}, {n}", source.normal(rows, size, scale=3), n)
        for rows, size, n in sizes
    ]
    return [
        *found,
        _listed(op, "ties", tied, 30),
        _listed(op, "zeros of both signs", zeros, 40),
        _listed(op, "nearly certain", sure, 2),
        _listed(op, "broken rows", broken(source), 5),
        Case(op, "one token", {"logits": source.normal(2, 1)}, {"n": 1}),
    ]


def _listed(op: str, name: str, logits: Array, n: int) -> Case:
    inputs = {"logits": logits}
    return Case(op, name, inputs, {"n": n}, negated_logits(inputs))


LOGITS: dict[str, Callable[[str], list[Case]]] = {
    "mask_logits": mask_logits,
    "adjust_logits": adjust_logits,
    "token_logprobs": token_logprobs,
    "top_logprobs": top_logprobs,
}
