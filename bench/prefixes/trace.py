"""A trace whose prompts are blocks with ids, lengths divided, and the best hits it allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from anychip.bench.load.mooncake import BLOCK, BlockCall
from anychip.bench.load.trace_file import TraceError
from anychip.request import Request, SamplingParams


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


def shrunk(calls: Iterable[BlockCall], divisor: int) -> list[Prompt]:
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
