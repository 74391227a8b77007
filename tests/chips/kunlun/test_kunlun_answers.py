"""The kunlun chip serves models on the simulated SDK: transformers' tokens, up to ties."""

from __future__ import annotations

from pathlib import Path

import kunlun_sim
import pytest

import tiny_models
from answers.equality import Oracle, assert_answers, config, demo_oracle, tiny_prompts
from anychip.engine.offline import OfflineEngine

CROSS = [  # radix cache, chunk, prompts at once, retract every, page size
    (True, 16, 5, 3, 16),
    (False, -1, 5, 0, 64),
    (True, 128, 1, 0, 32),
]
AROUND_SAMPLING = {"sample", "adjust_logits", "mask_logits", "token_logprobs", "top_logprobs"}
NEW_TOKENS = 10
TEXT = "The capital of France is Paris, and the capital of Italy is"


@pytest.fixture(scope="module")
def chosen(sdk) -> dict[str, str]:
    """Options of the chip for the simulated tree."""
    options = kunlun_sim.options_for(sdk.root)
    return {n: options[n] for n in ("sdk_root", "runtime_lib", "build_dir")}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(tiny_models.make_hf_model())


def served(offline: OfflineEngine, op: str) -> set[str]:
    return {how for name, how, _ in offline.info.operators if name == op}


@pytest.mark.parametrize("case", CROSS, ids=str)
def test_tiny_model_with_heads_that_the_vendor_declines(chosen, tiny, oracle, case):
    cache, chunk, batch, retract, page = case
    asked = config(
        tiny,
        backend="kunlun",
        chip_option=chosen,
        dtype="float32",
        disable_radix_cache=not cache,
        chunked_prefill_size=chunk,
        page_size=page,
        force_retract_every=retract,
    )
    with OfflineEngine(asked) as offline:
        assert_answers(offline, oracle, tiny_prompts(), NEW_TOKENS, batch)
        assert offline.engine.scheduler.check() == []
        assert served(offline, "paged_attention") == {"kunlun.paged_attention_composed"}
        composed = {op for op, _, kind in offline.info.operators if kind != "native"}
        assert composed <= {"attention_block", "mlp_block", *AROUND_SAMPLING}


@pytest.fixture(scope="module")
def smollm2(demo_model) -> Oracle:
    return demo_oracle(demo_model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_smollm2_gives_the_oracles_tokens(chosen, demo_model, smollm2, dtype) -> None:
    asked = config(
        demo_model, backend="kunlun", chip_option=chosen, dtype=dtype, context_length=512
    )
    with OfflineEngine(asked) as offline:
        ids = offline.tokenizer.encode(TEXT)
        prompts = [ids, ids[:5], ids[6:] + ids[:6]]
        assert_answers(offline, smollm2, prompts, NEW_TOKENS)
        assert served(offline, "paged_attention") == {"kunlun.paged_attention"}
