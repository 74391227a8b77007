"""Shaped and scored steps on the simulated SDK: composed operators in a memory of their own."""

from __future__ import annotations

import kunlun_sim
import pytest

import tiny_models
from answers.equality import config, tiny_prompts
from answers.shaped import ask, assert_chosen, assert_scored, run
from anychip.engine.offline import OfflineEngine
from anychip.request import FinishReason
from anychip.run.masks import NOTHING_LEFT

HOT = {"temperature": 1.4, "seed": 3}
EVERYTHING = {
    **HOT,
    "top_k": 30,
    "top_p": 0.95,
    "min_p": 0.001,
    "repetition_penalty": 1.4,
    "presence_penalty": 1.0,
    "frequency_penalty": 0.5,
    "logit_bias": ((90, 4.0), (7, -100.0)),
    "bad_words": ((17,), (90, 41)),
    "allowed_token_ids": (*range(1, 384, 2), 90),
    "min_tokens": 2,
    "stop_token_ids": tuple(range(3, 384, 4)),
    "logprobs": 3,
    "prompt_logprobs": 2,
}


@pytest.mark.parametrize(("overlap", "retract"), [(False, 0), (True, 3)])
def test_any_parameter_beside_any_other(sdk, tmp_path_factory, overlap, retract) -> None:
    folder = tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))
    options = kunlun_sim.options_for(sdk.root)
    asked = config(
        folder,
        backend="kunlun",
        chip_option={n: options[n] for n in ("sdk_root", "runtime_lib", "build_dir")},
        dtype="float32",
        chunked_prefill_size=16,
        page_size=16,
        max_running_requests=4,
        force_retract_every=retract,
    )
    model, prompt = tiny_models.make_hf_model(), tiny_prompts()[1]
    wishes = [{}, HOT, EVERYTHING, *({n: v} for n, v in EVERYTHING.items() if n not in HOT)]
    requests = [ask(f"r{at}", prompt, **wish) for at, wish in enumerate(wishes)]
    stuck = ask("stuck", prompt, allowed_token_ids=(5,), bad_words=((5,),))
    with OfflineEngine(asked, overlap=overlap) as offline:
        *found, ended = run(offline, [*requests, stuck])
        assert (offline.engine.stats().retractions > 0) == (retract > 0)
        how = {op: kind for op, _, kind in offline.info.operators}
    assert (ended.finish, ended.error) == (FinishReason.ERROR, NOTHING_LEFT)
    assert how["adjust_logits"] == how["token_logprobs"] == "composed"
    for request, got in zip(requests, found, strict=True):
        assert_chosen(model, request, got)
        told, params = [*prompt, *got.tokens], request.params
        if params.logprobs >= 0:
            assert_scored(model, told, len(prompt), got.logprobs, params.logprobs)
        if params.prompt_logprobs >= 0:
            assert_scored(model, prompt, 1, got.scores, params.prompt_logprobs)
