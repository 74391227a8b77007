"""Whatever the device does under load, nobody gets a wrong answer, and the engine comes back."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

import tiny_models
from anychip.engine.client import EngineClient
from engine_load import BUILDER, Load, config_for, go_through, right_answers

ERRORS = {
    "fail_launch": "kernel failure",
    "lose_device_at": "device lost",
    "hang_launch": "--watchdog-timeout",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


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
    assert load.seen["out of memory"]


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
