from __future__ import annotations

from anychip.request import TokenLogprob
from anychip.server.chat_events import (
    End,
    PlainReader,
    ReasoningDelta,
    Reply,
    Telling,
    TextDelta,
    ToolCallArguments,
    ToolCallStart,
)
from anychip.server.choice import Piece, ScoredToken

SCORES = TokenLogprob(logprob=-0.5, rank=1, top=((7, -0.5), (8, -1.5)))
LOGPROBS = (ScoredToken(token=7, scores=SCORES),)


class LastCharacterKept:
    """A reader that tells a text one character late, as a parser does that waits for a mark."""

    def __init__(self) -> None:
        self.kept = ""

    def feed(self, text):
        told, self.kept = (self.kept + text)[:-1], (self.kept + text)[-1:]
        return [TextDelta(choice=0, text=told)] if told else []

    def close(self):
        return [TextDelta(choice=0, text=self.kept)]


class CallsOnX:
    def feed(self, text):
        if "x" in text:
            yield ToolCallStart(choice=0, index=0, id="call_1", name="f")
            yield ToolCallArguments(choice=0, index=0, delta="{}")

    def close(self):
        return ()


def told(reader, *pieces):
    telling = Telling(reader)
    return [event for piece in pieces for event in telling.events(piece, 1)]


def test_plain_text_is_told_as_it_comes():
    pieces = [Piece(choice=2, text="ab"), Piece(choice=2, text="", finish="stop", matched="c")]
    assert told(PlainReader(2), *pieces) == [
        TextDelta(choice=2, text="ab"),
        End(choice=2, finish="stop", matched="c"),
    ]


def test_what_a_reader_kept_is_told_before_the_end():
    pieces = [Piece(choice=0, text="ab"), Piece(choice=0, text="c", finish="length")]
    events = told(LastCharacterKept(), *pieces)
    assert "".join(event.text for event in events[:-1]) == "abc"
    assert events[-1] == End(choice=0, finish="length")


def test_logprobs_go_with_the_text_of_their_piece_or_with_an_empty_one():
    events = told(LastCharacterKept(), Piece(choice=0, text="a", logprobs=LOGPROBS))
    assert events == [TextDelta(choice=0, text="", logprobs=LOGPROBS)]
    events = told(PlainReader(0), Piece(choice=0, text="a", logprobs=LOGPROBS))
    assert events == [TextDelta(choice=0, text="a", logprobs=LOGPROBS)]


def test_a_choice_that_called_a_tool_ends_with_tool_calls_unless_it_was_cut():
    for finish, expected in (("stop", "tool_calls"), ("length", "length"), ("abort", "abort")):
        events = told(CallsOnX(), Piece(choice=0, text="x"), Piece(choice=0, finish=finish))
        assert events[-1].finish == expected
    assert told(CallsOnX(), Piece(choice=0, text="y", finish="stop"))[-1].finish == "stop"


def test_a_reply_is_the_sum_of_its_events():
    reply = Reply(0)
    for event in (
        ReasoningDelta(choice=0, text="hm"),
        TextDelta(choice=0, text="a", logprobs=LOGPROBS),
        TextDelta(choice=0, text="b"),
        ToolCallStart(choice=0, index=0, id="call_1", name="f"),
        ToolCallArguments(choice=0, index=0, delta='{"a":'),
        ToolCallArguments(choice=0, index=0, delta=" 1}"),
        End(choice=0, finish="tool_calls", matched=5),
    ):
        reply.add(event)
    assert (reply.text, reply.reasoning, reply.logprobs) == ("ab", "hm", list(LOGPROBS))
    (call,) = reply.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "f", '{"a": 1}')
    assert (reply.finish, reply.matched) == ("tool_calls", 5)


class ThinksUntilMark:
    """Reasoning up to "/", which is kept until something follows."""

    def __init__(self) -> None:
        self.speaks = False

    def feed(self, text):
        if text == "/":
            self.speaks = True
        elif text:
            yield (TextDelta if self.speaks else ReasoningDelta)(choice=0, text=text)

    def close(self):
        return ()


def test_tokens_of_reasoning_are_counted_and_kept_ones_with_what_follows():
    telling = Telling(ThinksUntilMark())
    for tokens, text in ((3, "hm"), (5, "so"), (6, "/"), (7, "a")):
        telling.events(Piece(choice=0, text=text), tokens)
    assert telling.reasoning_tokens == 5
