from __future__ import annotations

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from anychip.engine.client import Outputs
from anychip.http.errors import ApiError
from anychip.request import FinishReason, StepOutput, TokenLogprob
from anychip.server.choice import Choice, Writing
from anychip.server.generation import Generation
from anychip.server.origin import Origin
from anychip.server.room import Room, check_volume, fit_max_tokens
from anychip.server.sampling import Sampling
from anychip.text.load import open_tokenizer

FACE = "\U0001f642"


@pytest.fixture(scope="module")
def tokenizer(folder):
    return open_tokenizer(folder)


def feed(choice, *steps, finish=FinishReason.LENGTH):
    """The pieces of a choice that gets these texts' bytes, one step each."""
    pieces = []
    for number, step in enumerate(steps, start=1):
        end = finish if number == len(steps) else None
        output = StepOutput(request_id="r", token_ids=tuple(step.encode()), finish=end)
        piece = choice.take(output)
        if piece is not None:
            pieces.append(piece)
        if choice.finish is not None:
            break
    return pieces


def choice_of(tokenizer, *stops, interval=1):
    sampling = Sampling(max_tokens=None, stop=stops)
    return Choice(0, tokenizer, sampling, interval=interval, writing=Writing())


def test_a_step_of_several_tokens_is_cut_inside_at_a_stop_string(tokenizer):
    choice = choice_of(tokenizer, "lo w")
    pieces = feed(choice, "hel", "lo world", "never")
    assert "".join(piece.text for piece in pieces) == choice.text == "hel"
    assert pieces[-1].matched == "lo w" and pieces[-1].finish == "stop"
    assert bytes(choice.token_ids) == b"hello w"


def test_a_stop_string_wins_over_the_end_in_the_same_step(tokenizer):
    choice = choice_of(tokenizer, "b")
    feed(choice, "ab", finish=FinishReason.LENGTH)
    assert (choice.finish, choice.matched, choice.text) == ("stop", "b", "a")


def test_a_cut_character_is_told_at_the_end(tokenizer):
    choice = choice_of(tokenizer)
    output = StepOutput(request_id="r", token_ids=(0xF0, 0x9F), finish=FinishReason.LENGTH)
    assert choice.take(output).text == "\ufffd"


def test_the_interval_joins_tokens_after_the_first(tokenizer):
    pieces = feed(choice_of(tokenizer, interval=3), *"abcdefgh")
    assert [piece.text for piece in pieces] == ["a", "bcd", "efg", "h"]


def test_the_stop_token_counts_and_is_not_shown(tokenizer):
    choice = choice_of(tokenizer)
    choice.take(StepOutput(request_id="r", token_ids=(97, 98), finish=FinishReason.STOP))
    assert (choice.text, choice.token_ids, choice.matched) == ("a", [97, 98], 98)


def test_a_stop_that_needs_the_held_text_of_several_faces(tokenizer):
    choice = choice_of(tokenizer, FACE + "!")
    steps = [bytes([byte]) for byte in f"x{FACE}{FACE}!y".encode()]
    for step in steps:
        choice.take(StepOutput(request_id="r", token_ids=tuple(step)))
        if choice.finish:
            break
    assert choice.text == "x" + FACE and choice.matched == FACE + "!"


def test_max_tokens_fit_the_context_or_the_cache():
    room = Room(context_length=100, cache_tokens=60)
    free, asked = Sampling(max_tokens=None), Sampling(max_tokens=50)
    assert fit_max_tokens(free, 10, None, room) == 50
    assert fit_max_tokens(free, 10, 16, room) == 16
    assert fit_max_tokens(asked, 10, 16, room) == 50
    with pytest.raises(ApiError, match="KV cache of 60 tokens; ask for at most 49"):
        fit_max_tokens(asked, 11, 16, room)


def test_volumes_are_bounded():
    check_volume(128, 32768, "max_tokens", 2**22)
    with pytest.raises(ApiError, match=r"at most 4194304 in one call .--max-tokens-per-call"):
        check_volume(128, 32769, "max_tokens", 2**22)


class Client:
    """An engine whose second choice has a token before the first has its prompt scored."""

    @contextmanager
    def reading(self, *requests):
        first, second = (request.id for request in requests)
        scores = tuple(TokenLogprob(-float(n), 1) for n in range(2))
        outputs = Outputs({request.id: request for request in requests}, backlog=5)
        for output in (
            StepOutput(request_id=second, token_ids=(97,)),
            StepOutput(request_id=first, prompt_logprobs=scores[:1]),
            StepOutput(request_id=second, token_ids=(98,), finish=FinishReason.LENGTH),
            StepOutput(request_id=first, token_ids=(99,), prompt_logprobs=scores[1:]),
            StepOutput(request_id=first, token_ids=(100,), finish=FinishReason.LENGTH),
        ):
            assert outputs.put(output)
        yield outputs


@pytest.mark.parametrize("scored", [0, -1])
def test_no_choice_is_told_of_before_its_prompt_is_scored(tokenizer, scored):
    service = MagicMock(
        client=Client(), tokenizer=tokenizer, config=SimpleNamespace(stream_interval=1)
    )
    service.next_engine_id.side_effect = ["a", "b"]
    origin = Origin(rid="r", namespace="", priority=0)
    sampling = Sampling(max_tokens=2, n=2, seed=1, prompt_logprobs=scored)
    generation = Generation(service, origin, [(1, 2, 3)], [2], sampling)

    async def told():
        first = generation.choices[0]
        return [(p.choice, len(first.prompt_logprobs)) async for p in generation.pieces()]

    pieces = asyncio.run(told())
    assert [choice for choice, _ in pieces] == [1, 1, 0, 0]
    assert all(known == 2 for _, known in pieces) == (scored >= 0)
