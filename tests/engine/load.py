"""Clients of one engine, all at once, whose every answer is held against the right one."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random

from anychip.engine.client import EngineClient, EngineUnavailable
from anychip.request import FinishReason, Request, SamplingParams

NEW_TOKENS = 12


def prompts(rng: Random, count: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Of different lengths, half of them with a common beginning."""
    stem = [rng.randrange(3, vocabulary) for _ in range(24)]
    return [
        (*stem[: 24 * (at % 2)], *(rng.randrange(3, vocabulary) for _ in range(rng.randint(1, 30))))
        for at in range(count)
    ]


def greedy(name: str, prompt: tuple[int, ...]) -> Request:
    params = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
    return Request(id=name, prompt=prompt, params=params)


@dataclass
class Load:
    """Clients that ask until `enough` answers came in a row of engines that die.

    right: each prompt and its greedy answer. errors: the texts that a client may be told.
    """

    client: EngineClient
    right: dict[tuple[int, ...], list[int]]
    errors: tuple[str, ...]
    seen: Counter[str] = field(default_factory=Counter)
    asked: int = 0

    async def run(self, clients: int, over, seed: int) -> None:
        """Ask on until `over()`. AssertionError for an answer that is not right."""
        await asyncio.gather(*(self._ask_on(over, Random(seed + n)) for n in range(clients)))

    async def _ask_on(self, over, rng: Random) -> None:
        while not over():
            try:
                await self._ask(rng)
            except EngineUnavailable as error:
                assert "restarting" in str(error)
                self.seen["unavailable"] += 1
                await asyncio.sleep(0.05)

    async def _ask(self, rng: Random) -> None:
        self.asked += 1
        chosen = rng.sample(sorted(self.right), rng.choice([1, 1, 2]))
        asked = {f"{self.asked}.{at}": prompt for at, prompt in enumerate(chosen)}
        got: dict[str, list[int]] = {name: [] for name in asked}
        leave_at = rng.randint(1, NEW_TOKENS) if rng.random() < 0.15 else None
        async with aclosing(self.client.generate(*(greedy(n, p) for n, p in asked.items()))) as all:
            async for output in all:
                name = output.request_id
                got[name] += output.token_ids
                right = self.right[asked[name]]
                assert got[name] == right[: len(got[name])], (name, got[name], right)
                self._note_end(output, got[name] == right)
                if leave_at is not None and len(got[name]) >= leave_at:
                    self.seen["left"] += 1
                    return

    def _note_end(self, output, whole: bool) -> None:
        if output.finish is FinishReason.ERROR:
            assert any(text in output.error for text in self.errors), output.error
            self.seen["error"] += 1
        elif output.finish is not None:
            assert whole and output.finish is FinishReason.LENGTH
            self.seen["answered"] += 1
