"""What is refused before a request becomes any state."""

from __future__ import annotations

from anychip.plan import CacheLimits
from anychip.request import Request

from .eviction import EVICTION_POLICIES
from .options import SchedulerOptions
from .policy import POLICIES
from .retraction import RETRACTIONS
from .waiting import WaitingQueue

TOKEN_IDS = 2**31
"""Ids are int32 on a chip. The vocabulary is smaller, but only the server knows it."""


class RequestRefused(ValueError):
    """The request cannot be taken; the text names the value, the limit and the way out."""


class QueueFull(RequestRefused):
    """Too many requests wait; the same request may be taken later."""


def refuse_full(request: Request, waiting: WaitingQueue, options: SchedulerOptions) -> None:
    """QueueFull where too many requests, or too many tokens, wait already."""
    most, most_tokens = options.max_queued, options.max_queued_tokens
    if most is not None and len(waiting) >= most:
        raise QueueFull(f"{len(waiting)} requests wait, the limit is {most}; try later")
    # A prompt over the limit is taken where nothing waits: otherwise it never could be.
    if most_tokens is not None and waiting and waiting.tokens + len(request.prompt) > most_tokens:
        raise QueueFull(
            f"{waiting.tokens} tokens wait and this request has {len(request.prompt)}, the limit "
            f"is {most_tokens}; try later"
        )


def refuse_unfit(request: Request, limits: CacheLimits, options: SchedulerOptions) -> None:
    """RequestRefused where the request could never run, or asks for what is never done."""
    length, name = len(request.prompt), f"request {request.id!r}"
    look_at_it = (options.policy, options.retraction, options.eviction)
    if request.priority and "priority" not in look_at_it:
        raise RequestRefused(
            f"{name} has priority {request.priority}, this server looks at none; leave it out, or "
            "start it with --schedule-policy priority, --retraction-policy priority or "
            "--radix-eviction-policy priority"
        )
    if length == 0:
        raise RequestRefused(f"{name} has an empty prompt; send at least one token")
    for token in (min(request.prompt), max(request.prompt)):
        if not 0 <= token < TOKEN_IDS:
            raise RequestRefused(f"{name} has token id {token}; ids are 0 .. {TOKEN_IDS - 1}")
    if request.params.max_tokens < 1:
        raise RequestRefused(
            f"{name} has max_tokens {request.params.max_tokens}; ask for 1 or more"
        )
    _refuse_emit(request, name)
    if request.params.prompt_logprobs_from < 1:
        raise RequestRefused(
            f"{name} has prompt_logprobs_from {request.params.prompt_logprobs_from}; the first "
            "token follows on nothing, so ask from 1 on"
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


def refuse_options(options: SchedulerOptions) -> None:
    """ValueError for a policy that does not exist."""
    choices = (
        ("policy", POLICIES),
        ("retraction", RETRACTIONS),
        ("eviction", EVICTION_POLICIES),
    )
    for name, known in choices:
        if getattr(options, name) not in known:
            raise ValueError(
                f"{name} is {getattr(options, name)!r}; there is {', '.join(sorted(known))}"
            )


def refuse_limits(limits: CacheLimits) -> None:
    """ValueError for limits under which nothing could run."""
    fields = ("pages", "page_size", "max_running", "step_tokens", "chunk")
    for name in fields:
        if getattr(limits, name) < 1:
            raise ValueError(f"{name} is {getattr(limits, name)}; it has to be 1 or more")
    if limits.recurrent and limits.host_slots:
        raise ValueError("host memory holds no recurrent state; host_slots has to be 0")
    every = limits.snapshot_every
    if limits.snapshots and (every < 1 or every % limits.page_size):
        raise ValueError(f"snapshot_every is {every}; it has to be whole pages")
    if limits.context_length < 2:
        raise ValueError(f"context_length is {limits.context_length}; it has to be 2 or more")


def _refuse_emit(request: Request, name: str) -> None:
    """RequestRefused where the named tokens and what else is asked for contradict each other."""
    params = request.params
    if not params.emit:
        return
    if params.grammar is not None or params.logprobs >= 0:
        other = "a grammar" if params.grammar is not None else "logprobs"
        raise RequestRefused(f"{name} names its tokens and asks for {other}; leave one out")
    if params.max_tokens != len(params.emit):
        raise RequestRefused(
            f"{name} names {len(params.emit)} tokens and has max_tokens {params.max_tokens}; they "
            "must agree"
        )
    if not all(0 <= token < TOKEN_IDS for token in params.emit):
        raise RequestRefused(f"{name} names a token outside 0 .. {TOKEN_IDS - 1}")
