"""Entries of one request's logits against a dense account of what its parameters mean."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anychip.plan import Row, SlotStart, StepPlan
from anychip.request import SamplingParams
from anychip.run.choosing import Shapes
from anychip.run.shaping import NO_ENTRIES, SlotShaping, join_entries

VOCABULARY = 12
EOS = frozenset({0, 40})  # a tokenizer may have ids that the model has no logit for
LOGITS = np.linspace(-3, 3, VOCABULARY, dtype=np.float32)

tokens = st.integers(0, VOCABULARY - 1)
sequences = st.lists(tokens, max_size=12)
words = st.lists(tokens, min_size=1, max_size=3).map(tuple)
tenths = st.integers(-20, 20).map(lambda n: n / 10)
params = st.builds(
    SamplingParams,
    max_tokens=st.just(100),
    repetition_penalty=st.sampled_from([1.0, 1.0, 0.5, 1.7]),
    presence_penalty=st.one_of(st.just(0.0), tenths),
    frequency_penalty=st.one_of(st.just(0.0), tenths),
    logit_bias=st.dictionaries(tokens, st.sampled_from([-100.0, -1.5, 0.0, 2.25, 100.0])).map(
        lambda bias: tuple(bias.items())
    ),
    min_tokens=st.sampled_from([0, 0, 1, 4, 30]),
    bad_words=st.lists(words, max_size=3).map(tuple),
    stop_token_ids=st.lists(tokens, max_size=2).map(tuple),
    ignore_eos=st.booleans(),
)


def dense(asked: SamplingParams, prompt: list[int], output: list[int]) -> np.ndarray:
    """The shaped logits, token by token as `SamplingParams` says it."""
    ending = {*asked.stop_token_ids, *(() if asked.ignore_eos else EOS)}
    found = LOGITS.astype(np.float64)
    for token in range(VOCABULARY):
        if token in (*prompt, *output):
            divides = found[token] > 0
            found[token] *= asked.repetition_penalty ** (-1 if divides else 1)
        found[token] -= asked.presence_penalty * (token in output)
        found[token] -= asked.frequency_penalty * output.count(token)
        found[token] += dict(asked.logit_bias).get(token, 0.0)
        written = [*output, token]
        bad = any(
            len(w) <= len(written) and tuple(written[-len(w) :]) == w for w in asked.bad_words
        )
        if bad or (len(output) < asked.min_tokens and token in ending):
            found[token] = -np.inf
    return found


def shaped(shaping: SlotShaping) -> np.ndarray:
    """The entries applied to the logits, as `adjust_logits` has it."""
    entries, found = shaping.entries(3), LOGITS.copy()
    assert (entries.rows == 3).all() and len(set(entries.ids.tolist())) == len(entries.ids)
    assert ((entries.ids >= 0) & (entries.ids < VOCABULARY)).all()
    assert entries.repetition.dtype == entries.bias.dtype == np.float32
    logits = found[entries.ids]
    changed = np.where(logits > 0, logits / entries.repetition, logits * entries.repetition)
    found[entries.ids] = np.where(np.isneginf(entries.bias), -np.inf, changed + entries.bias)
    return found


def begun(asked: SamplingParams, prompt: list[int], output: list[int]) -> SlotShaping:
    start = SlotStart(slot=0, params=asked, tokens=(*prompt, *output), prompt_length=len(prompt))
    return SlotShaping(start, EOS, VOCABULARY)


@settings(max_examples=150, deadline=None)
@given(params, st.lists(tokens, min_size=1, max_size=12), sequences)
@example(SamplingParams(max_tokens=9, bad_words=((1, 1),)), [1], [1, 1])
@example(SamplingParams(max_tokens=9, repetition_penalty=2.0, bad_words=((7,),)), [7], [7])
def test_entries_are_the_dense_account(asked, prompt, output) -> None:
    going_on = begun(asked, prompt, [])
    for length in range(len(output) + 1):
        wanted = dense(asked, prompt, output[:length])
        np.testing.assert_allclose(shaped(going_on), wanted, rtol=1e-5, atol=1e-5)
        # As after a retraction: what was produced is known from the start.
        np.testing.assert_array_equal(
            shaped(begun(asked, prompt, output[:length])), shaped(going_on)
        )
        if length < len(output):
            going_on.took(output[length])


def test_more_tokens_than_there_was_room_for() -> None:
    asked = SamplingParams(max_tokens=5000, frequency_penalty=1.0)
    start = SlotStart(slot=0, params=asked, tokens=(5,), prompt_length=1)
    shaping, entries = SlotShaping(start, EOS, 5000), {}
    for token in [*range(1000), *range(0, 1000, 2)]:
        shaping.took(token)
    found = shaping.entries(0)
    entries = dict(zip(found.ids.tolist(), found.bias.tolist(), strict=True))
    assert entries == {token: -2.0 + token % 2 for token in range(1000)}


def test_rows_that_are_not_shaped_have_no_entries() -> None:
    """Nor has a row without a token to choose; the index is that of the step's logit rows."""
    shapes = Shapes(VOCABULARY, EOS, None)
    biased = SamplingParams(max_tokens=5, logit_bias=((4, 1.5),))
    start = SlotStart(slot=2, params=biased, tokens=(1, 2), prompt_length=2)
    plain = Row(slot=0, tokens=(7,), start=3, sample=True)
    row = Row(slot=2, tokens=(1, 2), start=0, sample=True, shaped=True)
    middle = Row(slot=1, tokens=(1, 2), start=0, sample=False)
    plan = StepPlan(step=1, rows=(plain, middle, row), starts=(start,))
    shapes.begin(plan)
    found = shapes.entries(plan)
    assert (found.rows.tolist(), found.ids.tolist(), found.bias.tolist()) == ([1], [4], [1.5])
    assert shapes.entries(StepPlan(step=2, rows=(plain, middle))) is NO_ENTRIES
    assert shapes.mask_words(plan) == 0
    shapes.close()


def test_entries_of_several_rows() -> None:
    asked = SamplingParams(max_tokens=5, logit_bias=((4, 1.5), (2, -1.0)))
    found = join_entries([begun(asked, [1], []).entries(row) for row in (0, 3)])
    assert found.rows.tolist() == [0, 0, 3, 3]
    assert found.ids.tolist() == [4, 2, 4, 2]
    assert join_entries([]) is NO_ENTRIES
