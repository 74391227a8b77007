"""Probabilities of tokens as the protocols tell them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from anychip.request import TokenLogprob
from anychip.server.choice import ScoredToken

IMPOSSIBLE = -9999.0
"""What OpenAI tells for a probability of 0: JSON has no infinity."""

TokenBytes = Callable[[int], bytes]


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One of the likeliest tokens at a place."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TopLogprob, frozen=True, kw_only=True):
    """The token of a place, and the likeliest ones there."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """`logprobs` of a chat's choice."""

    content: list[ContentLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """`logprobs` of a completion's choice; lists of one entry a token.

    token_logprobs: null for the first token of a prompt, which follows on nothing. text_offset:
    characters of the choice's text before the token.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


def told(logprob: float) -> float:
    """A number that JSON has."""
    return logprob if math.isfinite(logprob) else IMPOSSIBLE


def chat_logprobs(scored: Iterable[ScoredToken], bytes_of: TokenBytes) -> ChatLogprobs:
    """OpenAI's form for chats."""

    def top(token: int, logprob: float) -> TopLogprob:
        raw = bytes_of(token)
        return TopLogprob(token=_text(raw), logprob=told(logprob), bytes=list(raw))

    content = []
    for one in scored:
        raw = bytes_of(one.token)
        content.append(
            ContentLogprob(
                token=_text(raw),
                logprob=told(one.scores.logprob),
                bytes=list(raw),
                top_logprobs=[top(token, logprob) for token, logprob in one.scores.top],
            )
        )
    return ChatLogprobs(content=content)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class CompletionTeller:
    """OpenAI's older form, piece after piece: offsets count on."""

    def __init__(self, bytes_of: TokenBytes) -> None:
        self._bytes_of = bytes_of
        self._offset = 0

    def prompt(self, tokens: Sequence[int], scores: Sequence[TokenLogprob]) -> CompletionLogprobs:
        """A prompt's tokens, whose first one has no probability. scores: of the others."""
        return self._told(tokens, [None, *scores])

    def answer(self, scored: Sequence[ScoredToken]) -> CompletionLogprobs:
        """The next tokens of the answer."""
        return self._told([one.token for one in scored], [one.scores for one in scored])

    def _told(
        self, tokens: Sequence[int], scores: Sequence[TokenLogprob | None]
    ) -> CompletionLogprobs:
        texts, offsets = [], []
        for token in tokens:
            texts.append(_text(self._bytes_of(token)))
            offsets.append(self._offset)
            self._offset += len(texts[-1])
        return CompletionLogprobs(
            tokens=texts,
            token_logprobs=[None if one is None else told(one.logprob) for one in scores],
            top_logprobs=[self._top(one) for one in scores],
            text_offset=offsets,
        )

    def _top(self, scores: TokenLogprob | None) -> dict[str, float] | None:
        if scores is None:
            return None
        # Two tokens may have one text (broken characters); the likelier one is told.
        found: dict[str, float] = {}
        for token, logprob in scores.top:
            found.setdefault(_text(self._bytes_of(token)), told(logprob))
        return found


class PromptLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """How probable a token was at its place in the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""vLLM's form: for each token of the prompt itself and the likeliest ones, by id; null for the
first token, which follows on nothing."""


def prompt_logprobs(
    prompt: Sequence[int], scores: Sequence[TokenLogprob], bytes_of: TokenBytes
) -> PromptLogprobs:
    """scores: of all tokens but the first."""

    def one(token: int, logprob: float, rank: int) -> PromptLogprob:
        return PromptLogprob(logprob=told(logprob), rank=rank, decoded_token=_text(bytes_of(token)))

    found: PromptLogprobs = [None]
    for token, score in zip(prompt[1:], scores, strict=False):
        likeliest = enumerate(score.top, start=1)
        entry = {str(other): one(other, logprob, rank) for rank, (other, logprob) in likeliest}
        found.append({str(token): one(token, score.logprob, score.rank), **entry})
    return found


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    """One behind the other."""
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs + second.top_logprobs,
        text_offset=first.text_offset + second.text_offset,
    )
