"""The greedy answer depends on nothing but the prompt: the full cross on a tiny random model."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import tiny_models
from answers.equality import Oracle, assert_same, config, greedy
from anychip.engine.offline import OfflineEngine

NEW_TOKENS = 24
CACHE, CHUNK, BATCH, RETRACT, PAGE = (True, False), (16, 128, -1), (1, 8), (0, 3), (1, 16)
CROSS = list(itertools.product(CACHE, CHUNK, BATCH, RETRACT, PAGE))
SOME = CROSS[::7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(tiny_models.make_hf_model())


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Eight prompts of 1 to 150 tokens; the last four share a beginning."""
    text = " ".join(tiny_models.CORPUS)
    ids = tiny_models.tiny_tokenizer().encode(text * 3).ids
    alone = [ids[7 * n : 7 * n + length] for n, length in enumerate((1, 17, 60, 150))]
    return alone + [ids[:40] + ids[100 + 9 * n : 110 + 10 * n] for n in range(4)]


@pytest.fixture(scope="module")
def wanted(oracle: Oracle, prompts: list[list[int]]) -> list[list[int]]:
    return [oracle.answer(prompt, NEW_TOKENS) for prompt in prompts]


def run(folder, oracle, prompts, wanted, backend, case, overlap=False, **more) -> None:
    cache, chunk, batch, retract, page = case
    asked = config(
        folder,
        backend=backend,
        disable_radix_cache=not cache,
        chunked_prefill_size=chunk,
        force_retract_every=retract,
        page_size=page,
        **more,
    )
    with OfflineEngine(asked, overlap=overlap) as offline:
        for start in range(0, len(prompts), batch):
            found = offline.generate(prompts[start : start + batch], greedy(NEW_TOKENS))
            for completion, prompt, tokens in zip(
                found, prompts[start:], wanted[start:], strict=False
            ):
                assert_same(offline, oracle, prompt, completion.token_ids, tokens)
            assert offline.engine.scheduler.check() == []
        retractions = offline.engine.stats().retractions
    assert (retractions > 0) == (retract > 0)


@pytest.mark.parametrize("case", CROSS, ids=str)
def test_cpu(folder, oracle, prompts, wanted, case) -> None:
    run(folder, oracle, prompts, wanted, "cpu", case)


@pytest.fixture(scope="module")
def bfloat16(folder, prompts) -> list[list[int]]:
    """The default chip's own answers in bfloat16, one prompt after another."""
    asked = config(folder, dtype="bfloat16", disable_radix_cache=True, chunked_prefill_size=-1)
    with OfflineEngine(asked) as offline:
        return [offline.generate([p], greedy(NEW_TOKENS))[0].token_ids for p in prompts]


@pytest.mark.parametrize("case", SOME, ids=str)
def test_cpu_in_bfloat16_equals_itself(folder, prompts, bfloat16, case) -> None:
    """No tie rule here: with the same rounding everywhere, every token is the same."""
    run(folder, None, prompts, bfloat16, "cpu", case, dtype="bfloat16")


@pytest.mark.parametrize("case", SOME, ids=str)
def test_cpu_in_bfloat16_with_overlapped_steps(folder, prompts, bfloat16, case) -> None:
    run(folder, None, prompts, bfloat16, "cpu", case, overlap=True, dtype="bfloat16")


@pytest.mark.parametrize("case", SOME[::2], ids=str)
def test_fake_with_overlapped_steps(folder, oracle, prompts, wanted, case) -> None:
    run(folder, oracle, prompts, wanted, "fake", case, overlap=True)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_fake(folder, oracle, prompts, wanted, case) -> None:
    run(folder, oracle, prompts, wanted, "fake", case)


@pytest.mark.parametrize("case", SOME[::2], ids=str)
def test_fake_by_composition_alone(folder, oracle, prompts, wanted, case) -> None:
    run(folder, oracle, prompts, wanted, "fake", case, chip_option={"primitives_only": "true"})
