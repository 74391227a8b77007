"""Whether a call fits: its prompts and what it asks for, against context, cache and limits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anychip.http.errors import ApiError, bad_request
from anychip.server.sampling import Sampling

MAX_SEQUENCES = 2048
"""Sequences (prompts x n) of one call."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What a sequence may need: context_length positions, cache_tokens in the whole cache."""

    context_length: int
    cache_tokens: int

    @property
    def limit(self) -> str:
        """What bounds a sequence, in words."""
        if self.cache_tokens < self.context_length:
            return f"the KV cache of {self.cache_tokens} tokens"
        return f"the context of {self.context_length} tokens"

    @property
    def longest(self) -> int:
        """Positions of the longest sequence that can run."""
        return min(self.context_length, self.cache_tokens)


def fit_max_tokens(sampling: Sampling, prompt: int, default: int | None, room: Room) -> int:
    """max_tokens for a prompt of `prompt` tokens: what was asked, or `default` cut to the room.

    default: None means all the room. ApiError 400 where prompt or sum is too long.
    """
    left = room.longest - prompt
    if left < 1:
        raise _too_long(prompt, room)
    name, asked = sampling.max_tokens_name, sampling.max_tokens
    if asked is None:
        most = left if default is None else min(default, left)
        _check_least(sampling, most)
        return most
    if asked > left:
        raise bad_request(
            f"{name} is {asked} and the prompt has {prompt} tokens, together {prompt + asked}, over"
            f" {room.limit}; ask for at most {left}",
            name,
            "context_length_exceeded",
        )
    return asked


def _check_least(sampling: Sampling, most: int) -> None:
    if sampling.min_tokens > most:
        name = sampling.min_tokens_name
        raise bad_request(
            f"{name} is {sampling.min_tokens}, over the {most} tokens that are produced at most"
            f" without {sampling.max_tokens_name}; ask for fewer, or send that too",
            name,
        )


def _too_long(prompt: int, room: Room) -> ApiError:
    return bad_request(
        f"the prompt has {prompt} tokens; {room.limit} takes at most {room.longest - 1}",
        "prompt",
        "context_length_exceeded",
    )


def check_list(items: Sequence[object], room: Room, name: str) -> None:
    """ApiError 400 where a list of ids, or of prompts, is longer than one call may have."""
    if isinstance(items[0], int):
        if len(items) >= room.longest:
            raise _too_long(len(items), room)
    elif len(items) > MAX_SEQUENCES:
        raise bad_request(f"{len(items)} prompts; at most {MAX_SEQUENCES} in one call", name)


def check_count(prompts: int, n: int) -> None:
    """ApiError 400 where one call asks for an absurd number of sequences."""
    if prompts * n > MAX_SEQUENCES:
        raise bad_request(
            f"{prompts} prompts with n = {n} are {prompts * n} sequences; at most {MAX_SEQUENCES}"
            " in one call",
            "n",
        )


def check_volume(sequences: int, max_tokens: int, name: str, most: int) -> None:
    """ApiError 400 where one call may ask for more than `most` tokens in all its sequences."""
    total = sequences * max_tokens
    if total > most:
        raise bad_request(
            f"{sequences} sequences x {name} = {max_tokens} is {total} tokens; at most {most} in"
            " one call (--max-tokens-per-call)",
            name,
        )
