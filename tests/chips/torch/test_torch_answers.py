"""The torch chip serves models: transformers' tokens, up to ties."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_models
from answers.equality import Oracle, assert_answers, config, demo_oracle, tiny_prompts
from anychip.engine.offline import OfflineEngine

CROSS = [  # radix cache, chunk, prompts at once, retract every, page size
    (True, 16, 5, 3, 1),
    (False, -1, 5, 0, 16),
    (True, 128, 1, 0, 16),
]
NEW_TOKENS = 10
TEXT = "The capital of France is Paris, and the capital of Italy is"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(tiny_models.make_hf_model())


@pytest.mark.parametrize("case", CROSS, ids=str)
def test_tiny_model(tiny, oracle, case) -> None:
    cache, chunk, batch, retract, page = case
    asked = config(
        tiny,
        backend="torch",
        dtype="float32",
        disable_radix_cache=not cache,
        chunked_prefill_size=chunk,
        page_size=page,
        force_retract_every=retract,
    )
    with OfflineEngine(asked) as offline:
        assert_answers(offline, oracle, tiny_prompts(), NEW_TOKENS, batch)
        assert offline.engine.scheduler.check() == []
        memory = offline.engine.runner._chip.memory
        composed = {op for op, _, kind in offline.info.operators if kind != "native"}
        assert composed <= {"attention_block", "mlp_block"}
    assert memory._used == 0


def test_smollm2_gives_the_oracles_tokens(demo_model) -> None:
    asked = config(demo_model, backend="torch", dtype="float32", context_length=512)
    with OfflineEngine(asked) as offline:
        ids = offline.tokenizer.encode(TEXT)
        prompts = [ids, ids[:5], ids[6:] + ids[:6]]
        assert_answers(offline, demo_oracle(demo_model), prompts, NEW_TOKENS)
