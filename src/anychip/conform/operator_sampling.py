"""S1: drawn tokens follow their distribution, whatever parameters are set beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from anychip.conform.operator_calls import run_case, spec_of
from anychip.conform.proof import Proof, failed, inconclusive, passed
from anychip.conform.subject import Subject
from anychip.contract.operators import Implementation
from anychip.contract.registration import Chip
from anychip.ops.cases import Case
from anychip.ops.cases.draw import draw
from anychip.ops.oracle.arrays import Array
from anychip.ops.oracle.sampling import row_of, staying
from anychip.ops.recipe import Recipe

ROWS, VOCABULARY = 2048, 40
OFF = {"temperature": 1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0}
ON = {"temperature": 0.6, "top_k": 12.0, "top_p": 0.8, "min_p": 0.08}
Z = 3.09
"""Standard normal quantile of 0.999: a right sampler exceeds it once in a thousand."""
LEAST = 5.0
"""Expected draws of a class; rarer tokens are counted together."""


@dataclass(frozen=True)
class Fit:
    """Pearson's statistic and the quantile that it must not exceed."""

    statistic: float
    quantile: float

    @property
    def ok(self) -> bool:
        """Whether the counts may come from the distribution."""
        return self.statistic <= self.quantile


def chi_square(counts: Array, p: Array) -> Fit:
    """Counts [V] against probabilities [V]. Infinite where a token of probability 0 was drawn.

    The quantile is Wilson and Hilferty's: chi-square's cube root is nearly normal.
    """
    if counts[p == 0].any():
        return Fit(float("inf"), 0.0)
    order = np.argsort(-p)
    expected, seen = p[order] * counts.sum(), counts[order].astype(float)
    whole = max(int(np.searchsorted(-expected, -LEAST, side="right")), 1)
    expected = np.append(expected[:whole], expected[whole:].sum())
    seen = np.append(seen[:whole], seen[whole:].sum())
    classes = expected > 0
    statistic = float(np.sum((seen - expected)[classes] ** 2 / expected[classes]))
    freedom = max(int(classes.sum()) - 1, 1)
    spread = 2 / (9 * freedom)
    return Fit(statistic, freedom * (1 - spread + Z * spread**0.5) ** 3)


def follows_distribution(subject: Subject) -> Proof:
    """S1."""
    chip = subject.chip
    implementations = chip.operators.of("sample")
    if not implementations:
        with Recipe(chip, "sample") as recipe:
            return _judge(chip, (recipe,))
    return _judge(chip, implementations)


def _judge(chip: Chip, implementations: tuple[Implementation, ...]) -> Proof:
    worst, asked = 0.0, 0
    for implementation in implementations:
        for name, inputs in _batches(chip):
            case = Case("sample", name, inputs)
            if implementation.declines(spec_of(chip, case)) is not None:
                continue
            asked += 1
            tokens = run_case(chip, case, implementation).outcome["tokens"]
            for problem, share in _problems(inputs, tokens):
                worst = max(worst, share)
                if problem is not None:
                    return failed(f"{implementation.id}, {name}: {problem}")
    if not asked:
        return inconclusive("no implementation of 'sample' covers a batch of the check")
    text = f"{asked} batches of {ROWS:,} draws; worst chi-square {worst:.2g} of its 0.999 quantile"
    return passed(text, batches=asked, worst_share_of_quantile=worst)


def _batches(chip: Chip) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subset of the parameters alone, all subsets in one batch, and rows without a draw."""
    rows = min(chip.capabilities().max_rows or ROWS, ROWS)
    subsets = list(product((False, True), repeat=len(OFF)))
    for subset in subsets:
        names = [n for n, on in zip(OFF, subset, strict=True) if on]
        yield ", ".join(names) or "no parameter", _inputs(rows, [subset])
    yield "all subsets in one batch", _inputs(rows, subsets)
    yield "greedy and broken rows", _special(_inputs(rows, [subsets[-1]]))


def _inputs(rows: int, subsets: list[tuple[bool, ...]]) -> dict[str, Any]:
    """Rows take the subsets in turn; the noise of each subset's rows is stratified."""
    kind = np.arange(rows) % len(subsets)
    values = {
        name: np.array([(ON if s[i] else OFF)[name] for s in subsets], np.float32)[kind]
        for i, name in enumerate(OFF)
    }
    share = -(-rows // len(subsets))
    noise = (np.arange(rows) // len(subsets) + 0.5) / share
    logits = draw("S1").normal(VOCABULARY, scale=1.5)
    return {
        "logits": np.tile(logits, (rows, 1)),
        **values,
        "top_k": values["top_k"].astype(np.int32),
        "noise": noise.astype(np.float32),
    }


def _special(inputs: dict[str, Any]) -> dict[str, Any]:
    """Every third row greedy, every third one NaN."""
    kind = np.arange(len(inputs["logits"])) % 3
    inputs["temperature"][kind == 1] = 0
    inputs["logits"][kind == 2] = np.nan
    return inputs


def _problems(inputs: dict[str, Any], tokens: Array) -> Iterator[tuple[str | None, float]]:
    """Of each kind of row: what is wrong, and how much of the quantile its statistic takes."""
    broken = np.isnan(inputs["logits"]).all(axis=1)
    if (tokens[broken] != -1).any():
        yield f"a row of NaN gave token {tokens[broken].max()}, not -1", 0.0
    greedy = (inputs["temperature"] == 0) & ~broken
    best = inputs["logits"].argmax(axis=1)
    if (tokens[greedy] != best[greedy]).any():
        yield "temperature 0 did not give the largest logit's token", 0.0
    drawn = ~broken & ~greedy
    keys = np.stack([inputs[n] for n in OFF], axis=1)
    for key in np.unique(keys[drawn], axis=0):
        rows = np.flatnonzero(drawn & (keys == key).all(axis=1))
        yield _fit(inputs, tokens[rows], int(rows[0]))


def _fit(inputs: dict[str, Any], tokens: Array, row: int) -> tuple[str | None, float]:
    """tokens: of rows that have the parameters of `row`."""
    if tokens.min() < 0 or tokens.max() >= VOCABULARY:
        return f"token {tokens.min()} of a vocabulary of {VOCABULARY}", 0.0
    p = staying(row_of(inputs, row))
    fit = chi_square(np.bincount(tokens, minlength=VOCABULARY), p / p.sum())
    parameters = ", ".join(f"{n} {inputs[n][row]:g}" for n in OFF)
    if fit.ok:
        return None, fit.statistic / fit.quantile
    statistic = f"chi-square {fit.statistic:.4g}, limit {fit.quantile:.4g}"
    return f"draws do not follow the distribution ({parameters}): {statistic}", 0.0
