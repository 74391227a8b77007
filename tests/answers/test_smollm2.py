"""The demo model on the default chip gives transformers' tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from answers.equality import (
    REPORT,
    Oracle,
    assert_same,
    config,
    demo_oracle,
    greedy,
    last_logits,
)
from anychip.engine.offline import OfflineEngine

LENGTHS = (5, 6, 7, 9, 12, 16, 17, 31, 32, 33, 48, 64, 100, 127, 128, 129, 200, 300, 450, 600)
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def oracle(demo_model: Path) -> Oracle:
    return demo_oracle(demo_model)


@pytest.fixture(scope="module")
def prompts(demo_model: Path) -> list[list[int]]:
    """20 prompts of 5 to 600 tokens of real text, each from another place."""
    from anychip.text.load import open_tokenizer

    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    ids = open_tokenizer(demo_model).encode(" ".join(text.split()))
    starts = [(37 * i) % (len(ids) - 700) for i in range(len(LENGTHS))]
    return [ids[s : s + n] for s, n in zip(starts, LENGTHS, strict=True)]


@pytest.fixture(scope="module")
def offline(demo_model: Path):
    with OfflineEngine(config(demo_model, dtype="float32", context_length=2048)) as engine:
        yield engine


@pytest.fixture(scope="module")
def alone(offline, prompts) -> list[list[int]]:
    """Our answers, one prompt after another, nothing cached."""
    found = []
    for prompt in prompts:
        offline.engine.flush_cache()
        (completion,) = offline.generate([prompt], greedy(NEW_TOKENS))
        found.append(completion.token_ids)
    return found


@pytest.fixture(scope="module")
def wanted(oracle, prompts, alone) -> list[list[int]]:
    """Transformers' answers; ours serve as drafts, which save time and change nothing."""
    pairs = zip(prompts, alone, strict=True)
    return [oracle.answer(prompt, NEW_TOKENS, draft) for prompt, draft in pairs]


def test_a_wrong_draft_changes_no_answer(oracle, prompts, wanted) -> None:
    wrong = [*wanted[0][:3], wanted[0][3] + 1, *wanted[0][4:]]
    assert oracle.answer(prompts[0], 6, wrong) == wanted[0][:6] == oracle.answer(prompts[0], 6)


def test_logits_are_those_of_transformers(offline, oracle, prompts) -> None:
    offline.generate([prompts[-1]], greedy(1))
    mine, reference = last_logits(offline), oracle.logits(prompts[-1])
    distance = np.linalg.norm(mine - reference) / np.linalg.norm(reference)
    control = np.linalg.norm(mine - oracle.logits(prompts[-1][:-1])) / np.linalg.norm(reference)
    assert distance < 1e-4, distance
    assert control > 100 * distance, (control, distance)


def test_greedy_tokens_equal_one_by_one(offline, oracle, prompts, alone, wanted) -> None:
    for prompt, tokens, reference in zip(prompts, alone, wanted, strict=True):
        assert_same(offline, oracle, prompt, tokens, reference)


def test_greedy_tokens_equal_batched_and_cached(offline, oracle, prompts, wanted) -> None:
    offline.engine.flush_cache()
    for _ in range(2):  # the second round finds its prompts in the cache
        found = offline.generate(prompts, greedy(NEW_TOKENS))
        for prompt, completion, tokens in zip(prompts, found, wanted, strict=True):
            assert_same(offline, oracle, prompt, completion.token_ids, tokens)
    assert sum(c.cached_tokens for c in found) > sum(LENGTHS) // 2
    assert offline.engine.scheduler.check() == []


def test_ties_are_rare(wanted) -> None:
    assert REPORT["ties"] <= 2


def test_two_turn_chat_hits_the_cache(offline) -> None:
    offline.engine.flush_cache()
    first = offline.tokenizer.encode(
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    (one,) = offline.generate([first], greedy(24))
    more = offline.tokenizer.encode(
        "<|im_end|>\n<|im_start|>user\nAnd of Italy?<|im_end|>\n<|im_start|>assistant\n"
    )
    second = [*first, *one.token_ids, *more]
    (two,) = offline.generate([second], greedy(8))
    assert one.cached_tokens == 0
    assert two.cached_tokens >= len(first)
