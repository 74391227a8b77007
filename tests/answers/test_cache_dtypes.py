"""A cache of one byte an element: near the answer of a float32 cache, and the same answer however
the work is cut: chunks, prefixes found again, other requests beside it, a retraction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny_models
from answers.equality import config, greedy, last_logits, tiny_prompts
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine

NEW_TOKENS = 12
SCALED = ("int8", "float8_e4m3")
LIMITS = {"bfloat16": 0.04, "int8": 0.08, "float8_e4m3": 0.4}
"""Relative L2 of logits against a float32 cache: about twice the worst of eight prompts."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def engine(folder, backend, **changes):
    chosen = {"max_total_tokens": 1024, "context_length": 512, **changes}
    return OfflineEngine(config(folder, backend=backend, dtype="float32", **chosen))


def alone(offline, prompts):
    """Each prompt by itself, nothing of it in the cache."""
    found = []
    for prompt in prompts:
        offline.engine.flush_cache()
        found.append(offline.generate([prompt], greedy(NEW_TOKENS))[0].token_ids)
    return found


@pytest.mark.parametrize("backend", ["fake", "cpu"])
@pytest.mark.parametrize("dtype", SCALED)
def test_the_answer_does_not_depend_on_how_the_work_is_cut(folder, backend, dtype):
    prompts = tiny_prompts()
    with engine(folder, backend, kv_cache_dtype=dtype) as offline:
        wanted = alone(offline, prompts)
        offline.engine.flush_cache()
        together = [c.token_ids for c in offline.generate(prompts, greedy(NEW_TOKENS))]
        cached = [c.token_ids for c in offline.generate(prompts, greedy(NEW_TOKENS))]
        assert offline.engine.stats().cached_tokens > 0
    assert together == wanted and cached == wanted
    cut = {"chunked_prefill_size": 16, "page_size": 1 if backend == "cpu" else 2}
    with engine(folder, backend, kv_cache_dtype=dtype, **cut) as offline:
        assert alone(offline, prompts) == wanted
    with engine(folder, backend, kv_cache_dtype=dtype, force_retract_every=4) as offline:
        retracted = [c.token_ids for c in offline.generate(prompts, greedy(NEW_TOKENS))]
        assert offline.engine.stats().retractions > 0
    assert retracted == wanted


@pytest.mark.parametrize("backend", ["cpu", "torch"])
def test_logits_are_near_those_of_a_float32_cache(folder, backend):
    (prompt,) = (tiny_prompts()[-1],)
    found = {}
    for dtype in ("float32", *LIMITS):
        with engine(folder, backend, kv_cache_dtype=dtype) as offline:
            offline.generate([prompt], greedy(1))
            found[dtype] = last_logits(offline).astype(np.float64)
    exact = found["float32"]
    errors = {n: np.linalg.norm(found[n] - exact) / np.linalg.norm(exact) for n in LIMITS}
    assert all(0 < errors[n] < LIMITS[n] for n in LIMITS), errors


def test_a_page_takes_a_byte_an_element_and_four_a_vector(folder):
    sizes = {}
    for dtype in ("float32", "float8_e4m3"):
        with engine(folder, "fake", kv_cache_dtype=dtype) as offline:
            sizes[dtype] = offline.engine.runner._caches[0].spec.group.page_bytes
    dim = tiny_models.HEAD_DIM
    assert sizes["float8_e4m3"] / sizes["float32"] == (dim + 4) / (4 * dim)


def test_a_chip_without_it_says_what_it_has(folder):
    composing = {"backend": "fake", "chip_option": {"primitives_only": "true"}}
    with pytest.raises(StartError, match=r"--kv-cache-dtype int8: chip 'fake' computes in"):
        OfflineEngine(config(folder, kv_cache_dtype="int8", **composing))
