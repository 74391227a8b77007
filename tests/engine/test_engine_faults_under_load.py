"""Whatever the device does under load, nobody gets a wrong answer, and the engine comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from random import Random

import pytest
from load import Load, greedy, prompts

import tiny_models
from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.engine.supervisor import RestartPolicy

BUILDER = "faulty_engine:build"
WATCHDOG_S = 3.0
ERRORS = {
    "fail_launch": "kernel failure",
    "lose_device_at": "device lost",
    "hang_launch": "--watchdog-timeout",
}
CLIENTS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


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


def random_faults(rng: Random, kinds: list[str]) -> list[dict]:
    """For each start one fault at some launch, and some steps that find no memory.

    The first process, which gives the reference, has none: the test ends it.
    """
    return [
        {},
        *(
            {
                "chip": {kind: str(rng.randint(20, 1500))},
                "out_of_memory": rng.sample(range(1, 60), 6),
            }
            for kind in kinds
        ),
        {"out_of_memory": rng.sample(range(2, 40), 4)},
    ]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))]
)
def test_every_answer_is_right_or_a_clear_error(model, tmp_path, seed):
    rng, faults = Random(seed), tmp_path / "faults.json"
    kinds = rng.sample(sorted(ERRORS), len(ERRORS))
    faults.write_text(json.dumps(random_faults(rng, kinds)))
    config = config_for(model, faults, "fake", {"memory": "64M"})
    errors = ("out of memory", "SIGKILL", *ERRORS.values())
    load = asyncio.run(go_through(config, len(kinds) + 1, errors, seed))
    assert json.loads(faults.read_text()) == []
    assert load.seen["error"] > len(kinds) and load.seen["answered"] > 40 and load.seen["left"]


def test_a_wrong_answer_would_be_noticed(model, tmp_path):
    """The same harness, told that another token were right."""
    faults = tmp_path / "faults.json"
    faults.write_text("[]")

    async def main():
        client = EngineClient(config_for(model, faults, "fake", {}), BUILDER)
        try:
            await client.start()
            right = await right_answers(client, [(5, 6, 7)])
            right[5, 6, 7][-1] += 1
            await Load(client, right, ()).run(1, lambda: False, seed=0)
        finally:
            await client.close(5)

    with pytest.raises(AssertionError):
        asyncio.run(main())
