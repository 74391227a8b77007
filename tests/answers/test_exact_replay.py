"""Named tokens are produced, and computed with, whatever the scheduler does meanwhile."""

from __future__ import annotations

import random

import pytest

import tiny_models
from answers.equality import config, greedy
from anychip.engine.offline import OfflineEngine, run_requests
from anychip.request import FinishReason, Request, SamplingParams

CASES = [  # cache, chunk, retract every, page size, overlap
    (True, 16, 0, 1, False),
    (True, 16, 3, 16, True),
    (False, -1, 3, 1, True),
    (True, -1, 0, 16, True),
    (False, 16, 0, 16, False),
]
COUNT, LENGTH, BEHIND = 6, 21, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def asked():
    """Prompts that partly share a beginning, and random answers; one has end tokens within."""
    rng = random.Random(5)
    begin = [rng.randrange(3, tiny_models.VOCAB) for _ in range(40)]
    found = []
    for number in range(COUNT):
        tail = [rng.randrange(3, tiny_models.VOCAB) for _ in range(1 + 9 * number)]
        emit = [rng.randrange(3, tiny_models.VOCAB) for _ in range(LENGTH)]
        found.append((tuple(begin * (number % 2) + tail), tuple(emit)))
    prompt, emit = found[0]
    return [(prompt, (*emit[:4], tiny_models.EOS, *emit[4:])), *found[1:]]


def exact(number: int, prompt, emit, **params) -> Request:
    values = {"max_tokens": len(emit), "temperature": 0.0, "ignore_eos": True, **params}
    return Request(id=f"r{number}", prompt=prompt, params=SamplingParams(emit=emit, **values))


@pytest.fixture(scope="module")
def behind(folder, asked):
    """What follows greedily on prompt and named answer, where both are one prompt."""
    with OfflineEngine(config(folder, disable_radix_cache=True)) as plain:
        found = plain.generate([[*p, *e] for p, e in asked], greedy(BEHIND))
    return [completion.token_ids for completion in found]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_what_is_named_is_produced_and_stays_in_the_cache(folder, asked, behind, backend, case):
    """What goes on from the cached answer shows which tokens its keys and values were made of."""
    cache, chunk, retract, page, overlap = case
    chosen = config(
        folder,
        backend=backend,
        disable_radix_cache=not cache,
        chunked_prefill_size=chunk,
        force_retract_every=retract,
        page_size=page,
    )
    with OfflineEngine(chosen, overlap=overlap) as offline:
        requests = [exact(n, prompt, emit) for n, (prompt, emit) in enumerate(asked)]
        for completion, (_, emit) in zip(
            run_requests(offline.engine, requests), asked, strict=True
        ):
            assert tuple(completion.token_ids) == emit
            assert completion.finish is FinishReason.LENGTH
        went_on = offline.generate([[*p, *e] for p, e in asked], greedy(BEHIND))
        assert [one.token_ids for one in went_on] == behind
        if cache:
            for one, (prompt, emit) in zip(went_on, asked, strict=True):
                assert one.cached_tokens >= (len(prompt) + len(emit) - 1) // page * page - page
        assert (offline.engine.stats().retractions > 0) == (retract > 0)
        assert offline.engine.scheduler.check() == []


def test_sampling_beside_named_tokens_is_as_it_was(folder, asked):
    """Others in the batch choose freely, with noise, penalties and all."""
    free = Request(
        id="free",
        prompt=asked[2][0],
        params=SamplingParams(
            max_tokens=16, temperature=1.0, seed=3, frequency_penalty=0.5, ignore_eos=True
        ),
    )
    shaped = exact(9, *asked[3], temperature=0.7, presence_penalty=1.0)
    with OfflineEngine(config(folder), overlap=True) as offline:
        (alone,) = run_requests(offline.engine, [free])
        one, two = run_requests(offline.engine, [free, shaped])
    assert one.token_ids == alone.token_ids
    assert tuple(two.token_ids) == asked[3][1]
