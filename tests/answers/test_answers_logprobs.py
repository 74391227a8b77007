"""Probabilities of answers and of prompts, as transformers has them, however they are computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny_models
from answers.equality import config, tiny_prompts
from answers.shaped import CLOSE, ask, assert_scored, raw_logits, run
from anychip.engine.offline import OfflineEngine

WAYS = [
    ("cpu", False, {}),
    ("cpu", True, {"chunked_prefill_size": 16, "page_size": 16}),
    ("cpu", True, {"force_retract_every": 4, "chunked_prefill_size": 40}),
    ("fake", True, {"max_running_requests": 2, "chunked_prefill_size": 16}),
    ("fake", False, {"chip_option": {"primitives_only": "true"}, "max_running_requests": 2}),
    ("torch", False, {"chunked_prefill_size": 64}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model():
    return tiny_models.make_hf_model()


def engine(folder: Path, backend: str, *, overlap: bool = False, **changes) -> OfflineEngine:
    asked = config(folder, backend=backend, dtype="float32", **changes)
    return OfflineEngine(asked, overlap=overlap)


def asked(prompts: list[list[int]]) -> list:
    """Everything of each; three of them shaped and drawn, which changes no probability told."""
    shapes = (
        {},
        {"temperature": 1.2, "seed": 5, "top_k": 40, "repetition_penalty": 1.5},
        {"allowed_token_ids": (200, 201, 202)},
        {"logit_bias": ((7, 50.0),), "bad_words": ((9,),)},
        {"prompt_logprobs_from": 100},
    )
    wishes = {"logprobs": 4, "prompt_logprobs": 2}
    pairs = enumerate(zip(prompts, shapes, strict=True))
    return [ask(f"r{at}", prompt, **wishes, **shape) for at, (prompt, shape) in pairs]


@pytest.mark.parametrize(("backend", "overlap", "changes"), WAYS, ids=str)
def test_answers_and_prompts_are_told_as_transformers_has_them(
    folder, model, backend, overlap, changes
) -> None:
    """Twice: the second time what may come from the cache does."""
    requests = asked(tiny_prompts())
    with engine(folder, backend, overlap=overlap, **changes) as offline:
        first = run(offline, requests)
        again = run(offline, requests)
    assert again[-1].cached_tokens > 80
    assert all(got.cached_tokens == 0 for got in again[:-1])
    for request, got, repeated in zip(requests, first, again, strict=True):
        told, prompt, params = [*request.prompt, *got.tokens], list(request.prompt), request.params
        assert_scored(model, told, len(prompt), got.logprobs, params.logprobs)
        start = min(params.prompt_logprobs_from, len(prompt))
        assert_scored(model, prompt, start, got.scores, params.prompt_logprobs)
        assert repeated.tokens == got.tokens
        for one, other in ((repeated.logprobs, got.logprobs), (repeated.scores, got.scores)):
            np.testing.assert_allclose(
                [s.logprob for s in one], [s.logprob for s in other], atol=1e-4
            )


def test_the_comparison_can_fail(folder, model) -> None:
    """Of the shaped logits, of another temperature, or one token further, they would differ."""
    (request,) = [ask("a", tiny_prompts()[1], logprobs=2, repetition_penalty=1.5)]
    with engine(folder, "cpu") as offline:
        (got,) = run(offline, [request])
    told, start = [*request.prompt, *got.tokens], len(request.prompt)
    assert_scored(model, told, start, got.logprobs, 2)
    shifted = [*got.logprobs[1:], got.logprobs[0]]
    with pytest.raises(AssertionError):
        assert_scored(model, told, start, shifted, 2)

    class Warmer:
        def __call__(self, ids):
            found = model(ids)
            found.logits = found.logits / 1.01
            return found

    with pytest.raises(AssertionError):
        assert_scored(Warmer(), told, start, got.logprobs, 2)


def test_the_tolerance_is_far_over_what_rounding_makes(folder, model) -> None:
    request = ask("a", tiny_prompts()[4], max_tokens=1, prompt_logprobs=0)
    with engine(folder, "cpu") as offline:
        (got,) = run(offline, [request])
    logits = raw_logits(model, list(request.prompt))
    wanted = logits - logits.max(-1, keepdims=True)
    wanted -= np.log(np.exp(wanted).sum(-1, keepdims=True))
    right = wanted[np.arange(len(request.prompt) - 1), request.prompt[1:]]
    error = np.abs([s.logprob for s in got.scores] - right).max()
    assert error < CLOSE / 10
