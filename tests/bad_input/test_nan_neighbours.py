"""One request whose logits are NaN, among others: it ends, and they answer as they would alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from anychip.config import ServeConfig
from anychip.engine.offline import OfflineEngine, run_requests
from anychip.request import FinishReason, Request, SamplingParams
from tiny_models import make_hf_folder

POISON = 300
"""The token whose embedding is NaN: so are keys, values and logits of who has it."""
CHIPS = [("cpu", {}), ("cpu", {"kernels": "host"}), ("fake", {}), ("torch", {"device": "cpu"})]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    model = make_hf_folder(tmp_path_factory.mktemp("poisoned"), tied=False)
    tensors = load_file(model / "model.safetensors")
    tensors["model.embed_tokens.weight"][POISON] = float("nan")
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    return model


def ask(name: str, prompt: tuple[int, ...], tokens: int, **sampling) -> Request:
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, **sampling)
    return Request(id=name, prompt=prompt, params=params)


def sound(sampling) -> list[Request]:
    return [ask(f"s{n}", tuple(range(5 + n, 24 + 3 * n)), 8 + 6 * n, **sampling) for n in range(3)]


def spoiled(sampling) -> list[Request]:
    return [ask(f"bad{n}", (*range(9, 30), POISON, *range(n)), 9, **sampling) for n in range(3)]


def answers(engine, asked: list[Request]) -> dict[str, tuple]:
    found = run_requests(engine, asked)
    assert engine.scheduler.check() == []
    told = zip(asked, found, strict=True)
    return {request.id: (tuple(one.token_ids), one.finish, one.error) for request, one in told}


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize(("backend", "options"), CHIPS, ids=str)
def test_neighbours_answer_as_they_would_alone(folder, backend, options, overlap):
    config = ServeConfig(
        model_path=str(folder),
        backend=backend,
        chip_option=options,
        max_running_requests=4,
        max_total_tokens=160,  # so that pages of those who failed are used again
        chunked_prefill_size=32,
        disable_radix_cache=True,
        random_seed=1,
    )
    with OfflineEngine(config, overlap=overlap) as offline:
        for sampling in ({}, {"temperature": 0.8}, {"presence_penalty": 0.5}):
            alone = answers(offline.engine, sound(sampling))
            first, *others = spoiled(sampling)
            mixed = answers(offline.engine, [first, *sound(sampling), *others])
            again = answers(offline.engine, sound(sampling))
            judge(mixed, alone, again)


def judge(mixed: dict[str, tuple], alone: dict[str, tuple], again: dict[str, tuple]) -> None:
    for name, (tokens, finish, error) in mixed.items():
        if name in alone:
            assert (tokens, finish, error) == alone[name] == again[name]
            assert finish is FinishReason.LENGTH
        else:
            assert (tokens, finish) == ((), FinishReason.ERROR)
            assert error.startswith("the model's logits are not numbers (NaN)")
