"""A trace whose prompts are blocks with ids, lengths divided, and the best hits it allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from anychip.request import Request, SamplingParams

BLOCK = 512
"""Tokens of one block in the trace."""


class TraceError(ValueError):
    """The trace cannot be used as asked; the text says why."""


class Call(msgspec.Struct, frozen=True):
    """One request as the trace has it. timestamp: ms. hash_ids: its prompt's blocks in order."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


class Prompt(msgspec.Struct, frozen=True):
    """One request with lengths divided. at: seconds. block: tokens of a whole block; the last
    block has what is left of `length`."""

    at: float
    length: int
    output: int
    block: int
    hash_ids: tuple[int, ...]

    def request(self, name: str) -> Request:
        """The request, greedy; equal blocks are equal tokens and different ones share none."""
        ids = self.hash_ids
        tokens = (token for h in ids for token in range(h * self.block, (h + 1) * self.block))
        params = SamplingParams(max_tokens=self.output, temperature=0.0, ignore_eos=True)
        prompt = tuple(token for token, _ in zip(tokens, range(self.length), strict=False))
        return Request(id=name, prompt=prompt, params=params)


def read_trace(path: Path, most: int | None = None) -> list[Call]:
    """The first `most` requests of a JSON lines file. Raises TraceError, OSError."""
    lines = path.read_text().splitlines()[:most]
    try:
        calls = [msgspec.json.decode(line, type=Call) for line in lines]
    except msgspec.MsgspecError as error:
        raise TraceError(f"{path}: not a trace of blocks: {error}") from error
    for number, call in enumerate(calls, 1):
        if len(call.hash_ids) != -(-call.input_length // BLOCK):
            raise TraceError(
                f"{path}, line {number}: {call.input_length} tokens in {len(call.hash_ids)} "
                f"blocks; blocks of {BLOCK} tokens are needed"
            )
    if not calls:
        raise TraceError(f"{path}: no request in it")
    return calls


def shrunk(calls: Iterable[Call], divisor: int) -> list[Prompt]:
    """Divide all lengths; blocks, what they share and the times stay. Raises TraceError."""
    if divisor < 1 or BLOCK % divisor:
        raise TraceError(f"lengths cannot be divided by {divisor}: take a divisor of {BLOCK}")
    return [
        Prompt(
            call.timestamp / 1000,
            max(1, -(-call.input_length // divisor)),
            max(1, round(call.output_length / divisor)),
            BLOCK // divisor,
            call.hash_ids,
        )
        for call in calls
    ]


def best_hits(prompts: Sequence[Prompt], page_size: int) -> int:
    """Prompt tokens that an unbounded cache of whole pages can find, from the ids alone.

    A block can be found where an earlier request had it behind the same blocks. The last token
    of a prompt is always computed.
    """
    chains: dict[tuple[int, int], int] = {}
    found = 0
    for prompt in prompts:
        chain, common, known = -1, 0, True
        for block in prompt.hash_ids:
            step = (chain, block)
            known = known and step in chains
            common += known
            chain = chains.setdefault(step, len(chains))
        cached = min(common * prompt.block, prompt.length - 1)
        found += cached // page_size * page_size
    return found


def moved(prompts: Sequence[Prompt], times: int) -> list[Prompt]:
    """The same requests with other blocks: work of the same shape about other things."""
    first = times * (1 + max(block for prompt in prompts for block in prompt.hash_ids))
    return [
        msgspec.structs.replace(prompt, hash_ids=tuple(first + h for h in prompt.hash_ids))
        for prompt in prompts
    ]
