"""What is refused before a request becomes any state."""

from __future__ import annotations

from anychip.plan import CacheLimits
from anychip.request import Request

TOKEN_IDS = 2**31
"""Ids are int32 on a chip. The vocabulary is smaller, but only the server knows it."""


class RequestRefused(ValueError):
    """The request cannot be taken; the text names the value, the limit and the way out."""


class QueueFull(RequestRefused):
    """Too many requests wait; the same request may be taken later."""


def refuse_unfit(request: Request, limits: CacheLimits) -> None:
    """RequestRefused where the request could never run within `limits`."""
    length, name = len(request.prompt), f"request {request.id!r}"
    if length == 0:
        raise RequestRefused(f"{name} has an empty prompt; send at least one token")
    for token in (min(request.prompt), max(request.prompt)):
        if not 0 <= token < TOKEN_IDS:
            raise RequestRefused(f"{name} has token id {token}; ids are 0 .. {TOKEN_IDS - 1}")
    if request.params.max_tokens < 1:
        raise RequestRefused(
            f"{name} has max_tokens {request.params.max_tokens}; ask for 1 or more"
        )
    if length > limits.context_length - 1:
        raise RequestRefused(
            f"{name} has a prompt of {length} tokens, the context length {limits.context_length} "
            f"leaves room for {limits.context_length - 1}; shorten the prompt"
        )
    if length > limits.pages * limits.page_size:
        raise RequestRefused(
            f"{name} has a prompt of {length} tokens, the cache holds "
            f"{limits.pages * limits.page_size}; shorten the prompt or give the cache more memory"
        )


def refuse_limits(limits: CacheLimits) -> None:
    """ValueError for limits under which nothing could run."""
    fields = ("pages", "page_size", "max_running", "step_tokens", "chunk")
    for name in fields:
        if getattr(limits, name) < 1:
            raise ValueError(f"{name} is {getattr(limits, name)}; it has to be 1 or more")
    if limits.context_length < 2:
        raise ValueError(f"context_length is {limits.context_length}; it has to be 2 or more")
