"""What `anychip.Engine` returns."""

from __future__ import annotations

import msgspec

from anychip.server.chat_events import ToolCall


class TokenScore(msgspec.Struct, frozen=True, kw_only=True):
    """How probable a token was, by the model's own logits. logprob: natural logarithm.

    rank: 1 for the likeliest. top: (id, logprob) of the likeliest tokens there, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: list[tuple[int, float]]


class AnswerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One continuation. finish_reason: stop, length, abort or, in a chat, tool_calls.

    token_ids: the stop token included. matched_stop: the stop string or token that ended it.
    logprobs: of each token id, where they were asked for. reasoning, tool_calls: of a chat.
    """

    text: str
    token_ids: list[int]
    finish_reason: str | None
    matched_stop: str | int | None = None
    logprobs: list[TokenScore] = []
    reasoning: str = ""
    tool_calls: list[ToolCall] = []


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one prompt got: `n` choices; the properties are those of the first.

    rid: id of the call. cached_tokens: prompt tokens whose KV came from the prefix cache.
    completion_tokens: of all choices. prompt_logprobs: of the prompt's last tokens, as many as
    were asked for.
    """

    rid: str
    choices: list[AnswerChoice]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    prompt_logprobs: list[TokenScore] = []

    @property
    def text(self) -> str:
        """The text, without what stopped it."""
        return self.choices[0].text

    @property
    def token_ids(self) -> list[int]:
        """The generated ids, the stop token included."""
        return self.choices[0].token_ids

    @property
    def logprobs(self) -> list[TokenScore]:
        """Of each token id, where they were asked for."""
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> str | None:
        """Why it ended: stop, length, abort or tool_calls."""
        return self.choices[0].finish_reason

    @property
    def matched_stop(self) -> str | int | None:
        """The stop string or token that ended it."""
        return self.choices[0].matched_stop


class ToolCallPart(msgspec.Struct, frozen=True, kw_only=True):
    """More of a tool call. index: counts the calls of a choice from 0. id, name: with its first
    part. arguments: joins to a JSON text."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class AnswerPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one choice of a stream gained; its last one carries `finish_reason`.

    prompt, choice: which, from 0. text, token_ids, logprobs, reasoning, tool_call: what is new;
    joined they are the answer's. completion_tokens: of this choice so far. The rest as in Answer.
    """

    rid: str
    prompt: int
    choice: int
    text: str = ""
    token_ids: list[int]
    finish_reason: str | None = None
    matched_stop: str | int | None = None
    logprobs: list[TokenScore] = []
    reasoning: str = ""
    tool_call: ToolCallPart | None = None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
