"""Clients of one engine, all at once, whose every answer is held against the right one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random

import tiny_models
from anychip.config import ServeConfig
from anychip.engine.client import EngineClient, EngineUnavailable
from anychip.engine.supervisor import RestartPolicy
from anychip.engine.suspects import RequestSuspected
from anychip.request import FinishReason, Request, SamplingParams

BUILDER = "faulty_engine:build"
NEW_TOKENS, CLIENTS, WATCHDOG_S = 12, 6, 3.0


def prompts(rng: Random, count: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Of different lengths, half of them with a common beginning."""
    stem = [rng.randrange(3, vocabulary) for _ in range(24)]
    return [
        (*stem[: 24 * (at % 2)], *(rng.randrange(3, vocabulary) for _ in range(rng.randint(1, 30))))
        for at in range(count)
    ]


def greedy(name: str, prompt: tuple[int, ...], serial: int = 1) -> Request:
    """serial: makes it another request, or two crashes would have it refused."""
    params = SamplingParams(
        max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True, top_k=1 + serial
    )
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
            except RequestSuspected:  # it ran twice when the device failed: a clear error too
                self.seen["suspected"] += 1
                await asyncio.sleep(0)

    async def _ask(self, rng: Random) -> None:
        self.asked += 1
        chosen = rng.sample(sorted(self.right), rng.choice([1, 1, 2]))
        asked = {f"{self.asked}.{at}": prompt for at, prompt in enumerate(chosen)}
        requests = [greedy(name, prompt, self.asked) for name, prompt in asked.items()]
        got: dict[str, list[int]] = {name: [] for name in asked}
        leave_at = rng.randint(1, NEW_TOKENS) if rng.random() < 0.15 else None
        async with aclosing(self.client.generate(*requests)) as all:
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
            told = [text for text in self.errors if text in output.error]
            assert told, output.error
            self.seen.update(["error", *told])
        elif output.finish is not None:
            assert whole and output.finish is FinishReason.LENGTH
            self.seen["answered"] += 1


def config_for(model, faults, backend: str, options: dict[str, str]) -> ServeConfig:
    return ServeConfig(
        model_path=str(model),
        backend=backend,
        chip_option={**options, "faults": str(faults)},
        context_length=128,
        max_total_tokens=256,
        max_running_requests=4,
        chunked_prefill_size=16,
        watchdog_timeout=WATCHDOG_S,
    )


async def right_answers(client: EngineClient, asked) -> dict:
    """One after another, with nobody else there and nothing cached."""
    found = {}
    for at, prompt in enumerate(asked):
        outputs = [o async for o in client.generate(greedy(f"alone{at}", prompt))]
        found[prompt] = [token for output in outputs for token in output.token_ids]
        assert await client.flush()
    return found


async def nothing_held(client: EngineClient) -> None:
    async def poll():
        while client.stats.running or client.stats.queued:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(poll(), 30)
    assert client.stats.pages_held == 0 and await client.flush()
    (output,) = [o async for o in client.generate(greedy("last", (5,))) if o.finish]
    assert output.error is None
    await poll()
    stats = client.stats
    assert (stats.pages_held, stats.check_violations) == (0, 0)
    assert stats.pages_free + stats.pages_cached == stats.pages_total


async def go_through(config: ServeConfig, lives: int, errors: tuple[str, ...], seed: int) -> Load:
    """Load through `lives` engines that die and one that does not."""
    client = EngineClient(
        config, BUILDER, policy=RestartPolicy(first_pause_s=0.01, deaths=lives + 2)
    )
    try:
        await client.start()
        asked = prompts(Random(seed), 8, tiny_models.VOCAB)
        load = Load(client, await right_answers(client, asked), errors)
        asyncio.get_running_loop().call_later(0.3, os.kill, client.pid, signal.SIGKILL)
        for life in range(lives):
            await load.run(CLIENTS, lambda life=life: client.deaths > life, seed + life)
        answered = load.seen["answered"]
        await load.run(CLIENTS, lambda: load.seen["answered"] >= answered + 40, seed)
        assert client.deaths == lives
        await nothing_held(client)
        return load
    finally:
        await client.close(5)
