"""Which tokens may follow: bits of rows, and requests that have nothing left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.plan import NOT_SAMPLED, Row, SlotStart, StepPlan
from anychip.request import GrammarSpec, SamplingParams
from anychip.run.choosing import Shapes
from anychip.run.masks import NOTHING_LEFT, GrammarBroken, mask_of, mask_words

VOCABULARY = 70
EOS = frozenset({2})


def bits(words: np.ndarray) -> set[int]:
    """Tokens whose bit is set."""
    return {
        32 * at + bit
        for at, word in enumerate(words.tolist())
        for bit in range(32)
        if word >> bit & 1
    }


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, VOCABULARY - 1)))
def test_a_token_is_one_bit(tokens) -> None:
    words = mask_of(tokens, mask_words(VOCABULARY))
    assert (words.dtype, words.shape) == (np.int32, (3,))
    assert bits(words) == tokens


class Letters:
    """Grammars that allow what `allowed` says, force what `forces` says, and break on token 9."""

    def __init__(self, allowed: set[int], forces: tuple[int, ...] = ()) -> None:
        self.allowed, self.forces = allowed, forces
        self.begun: list[tuple[int, list[int]]] = []
        self.most: list[int] = []

    def begin(self, slot, spec, output) -> None:
        self.begun.append((slot, list(output)))
        if spec.text == "broken":
            raise GrammarBroken("it cannot begin")

    def fill(self, slot, words) -> None:
        words[:] = mask_of(self.allowed, len(words))

    def took(self, slot, token, *, most):
        self.most.append(most)
        if token == 9:
            raise GrammarBroken("9 does not fit")
        return self.forces[:most]


def start_of(slot: int, output: tuple[int, ...] = (), **params) -> SlotStart:
    asked = SamplingParams(max_tokens=50, **params)
    return SlotStart(slot=slot, params=asked, tokens=(5, *output), prompt_length=1)


def row_of(slot: int) -> Row:
    return Row(slot=slot, tokens=(5,), start=0, sample=True, shaped=True)


class Step:
    """One step over slots that begin with it: the masks of its rows, then what it takes."""

    def __init__(self, *starts: SlotStart, grammars: Letters | None = None) -> None:
        self.shapes = Shapes(VOCABULARY, EOS, grammars)
        self.plan = StepPlan(
            step=1, rows=tuple(row_of(start.slot) for start in starts), starts=starts
        )
        self.shapes.begin(self.plan)

    def masks(self) -> list[set[int]]:
        words = np.zeros((len(self.plan.rows) + 1, self.shapes.masks.words), np.int32)
        slots = [row.slot for row in self.plan.rows]
        self.shapes.masks.make([*slots, -1], words).result()
        *rows, padding = [bits(row) for row in words]
        assert padding == set(range(96))
        self.shapes.close()
        return rows

    def take(self, *tokens: int):
        return self.shapes.take(self.plan, tokens)


def test_rows_of_several_kinds() -> None:
    allowed = {1, 2, 31, 32, 69}
    step = Step(
        start_of(0, allowed_token_ids=tuple(allowed)),
        start_of(3, allowed_token_ids=tuple(allowed), min_tokens=1),
        start_of(4, (7,), allowed_token_ids=tuple(allowed), min_tokens=1),
        start_of(1, allowed_token_ids=tuple(allowed), stop_token_ids=(31, 90), min_tokens=2),
        start_of(2, allowed_token_ids=tuple(allowed), bad_words=((32,), (8, 1), (7, 69))),
        start_of(5, (7,), allowed_token_ids=tuple(allowed), bad_words=((8, 1), (7, 69))),
    )
    assert step.shapes.mask_words(step.plan) == 3
    assert step.masks() == [
        allowed,
        allowed - {2},
        allowed,
        allowed - {2, 31},
        allowed - {32},
        allowed - {69},
    ]
    assert step.take(1, 1, 1, 1, 1, 1) == ({}, {})


@pytest.mark.parametrize(
    "params",
    [{"bad_words": ((2,),)}, {"min_tokens": 3}],
    ids=str,
)
def test_nothing_left_ends_that_request_alone(params) -> None:
    step = Step(start_of(0, allowed_token_ids=(2,), **params), start_of(1, allowed_token_ids=(4,)))
    masks = step.masks()
    assert masks[1] == {4} and len(masks[0]) == 96  # its token is dropped
    assert step.take(0, 4) == ({}, {0: NOTHING_LEFT})


def test_a_row_without_a_token_takes_nothing() -> None:
    step = Step(start_of(0, allowed_token_ids=(2,)))
    step.take(NOT_SAMPLED)
    assert step.shapes._slots[0].output == []


GRAMMAR = GrammarSpec("regex", "a")


def test_grammar_with_allowed_ids_and_a_shortest_length() -> None:
    letters = Letters({2, 4, 6})
    step = Step(
        start_of(0, grammar=GRAMMAR),
        start_of(1, (4, 4), grammar=GRAMMAR, allowed_token_ids=(2, 4), min_tokens=3),
        grammars=letters,
    )
    assert letters.begun == [(0, []), (1, [4, 4])]
    assert step.masks() == [{2, 4, 6}, {4}]


def test_a_complete_grammar_ends_the_answer_whatever_its_shortest_length() -> None:
    step = Step(start_of(0, grammar=GRAMMAR, min_tokens=3), grammars=Letters({2}))
    assert step.masks() == [{2}]


def test_forced_tokens_count_as_output() -> None:
    letters = Letters({4}, forces=(6, 7))
    step = Step(start_of(0, grammar=GRAMMAR, frequency_penalty=1.0), grammars=letters)
    assert step.take(4) == ({0: (6, 7)}, {})
    assert step.shapes._slots[0].output == [4, 6, 7]


def test_no_more_is_forced_than_the_answer_has_room_for() -> None:
    letters = Letters({4}, forces=(6, 7, 8))
    step = Step(start_of(0, output=(4,) * 47, grammar=GRAMMAR), grammars=letters)
    assert step.take(4) == ({0: (6, 7)}, {})
    assert letters.most == [2]


@pytest.mark.parametrize(
    "params", [{"logprobs": 0}, {"allowed_token_ids": (4,)}, {"bad_words": ((6,),)}], ids=str
)
def test_nothing_is_forced_where_each_token_is_looked_at(params) -> None:
    letters = Letters({4}, forces=(6,))
    step = Step(start_of(0, grammar=GRAMMAR, **params), grammars=letters)
    assert step.take(4) == ({}, {})
    assert letters.most == [0]


def test_a_broken_grammar_ends_that_request_alone() -> None:
    broken = GrammarSpec("regex", "broken")
    step = Step(
        start_of(0, grammar=broken),
        start_of(1, grammar=GRAMMAR),
        start_of(2, grammar=GRAMMAR),
        grammars=Letters({4}),
    )
    assert step.masks()[1:] == [{4}, {4}]
    assert step.take(4, 9, 4) == ({}, {0: "it cannot begin", 1: "9 does not fit"})


def test_a_grammar_without_anyone_who_knows_it() -> None:
    with pytest.raises(ValueError, match="nothing here knows grammars"):
        Step(start_of(0, grammar=GRAMMAR))
