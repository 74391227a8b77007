"""A tiny model of any family, as transformers makes and saves it, against what we make of it.

Weights are random, large enough that greedy output varies. Everything is float32: logits must agree
to a relative L2 of LIMIT however they were computed, and greedy tokens must be equal.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tiny_models
from answers.equality import Oracle, assert_answers, config, greedy, last_logits
from anychip.engine.offline import OfflineEngine
from anychip.model.checkpoint import Checkpoint, open_checkpoint
from anychip.model.families import FAMILIES
from anychip.model.folder import Folder
from anychip.run.reference import reference_logits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anychip.model.config import ModelConfig
    from anychip.model.naming import Naming

LIMIT = 1e-4
BACKENDS = ("cpu", "fake", pytest.param("torch", marks=pytest.mark.slow))
LIVELY = 1.2
SIZES: dict[str, Any] = {
    "vocab_size": tiny_models.VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": tiny_models.BOS,
    "eos_token_id": tiny_models.EOS,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}


def make_model(family: str, *, seed: int = 0, **settings: Any) -> Any:
    """transformers' model of that class prefix ("Qwen3" for Qwen3ForCausalLM), eager attention.

    settings: of its config class, over SIZES; None leaves a size of SIZES out.
    """
    import torch
    import transformers

    chosen = {k: v for k, v in {**SIZES, **settings}.items() if v is not None}
    network = getattr(transformers, f"{family}ForCausalLM")
    config = network.config_class(**chosen)
    config._attn_implementation = "eager"
    model = network(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.add_(0.1 * noise)  # about what it begins with: ones or zeros
            else:
                parameter.copy_(noise * LIVELY / parameter.shape[-1] ** 0.5)
    return model


def save(model: Any, folder: Path) -> Path:
    """As a Hugging Face folder, with the tiny tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tiny_models.write_tokenizer(folder)
    return folder


def prompts() -> list[list[int]]:
    """Of 1 to 130 tokens, two that begin alike."""
    ids = tiny_models.tiny_tokenizer().encode(" ".join(tiny_models.CORPUS) * 3).ids
    return [ids[:1], ids[5:22], ids[9:40] + ids[90:99], ids[9:69], ids[:130]]


def relative(got: np.ndarray, wanted: np.ndarray) -> float:
    """Relative L2 of a difference."""
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def true_logits(model: Any, ids: list[int]) -> np.ndarray:
    """Transformers' logits [T, V] of a sequence."""
    import torch

    with torch.no_grad():
        found: np.ndarray = model(torch.tensor([ids])).logits[0].numpy()
    return found


def error_of(path: Path, model: Any) -> float:
    """How far the logits of a file are from those of a model, all of whose tensors it uses."""
    ids = prompts()[3]
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        assert not checkpoint.unused
        got = reference_logits(checkpoint, checkpoint.config, ids)
    return relative(got, true_logits(model, ids))


@contextlib.contextmanager
def offline(folder: Path, **changes: Any) -> Iterator[OfflineEngine]:
    engine = OfflineEngine(config(folder, dtype="float32", **changes))
    try:
        yield engine
    finally:
        engine.close()


def assert_logits(engine: OfflineEngine, model: Any, prompt: list[int]) -> None:
    """Logits behind a prompt, and behind a few tokens decoded after it."""
    (answer,) = engine.generate([prompt], greedy(1))
    assert relative(last_logits(engine), true_logits(model, prompt)[-1]) < LIMIT, len(prompt)
    engine.engine.flush_cache()
    (answer,) = engine.generate([prompt], greedy(6))
    whole = [*prompt, *answer.token_ids[:-1]]
    assert relative(last_logits(engine), true_logits(model, whole)[-1]) < LIMIT, len(whole)


def assert_family(
    model: Any, path: Path, *, asked: list[list[int]] | None = None, **changes: Any
) -> None:
    """Whole prefill, chunked prefill, from the cache, decode, batched: all as transformers.

    path: where `model` was saved. asked: prompts. changes: of the server's configuration.
    """
    oracle, asked = Oracle(model), asked or prompts()
    changes = {"backend": "cpu", **changes}
    with offline(path, **changes) as engine:
        for prompt in asked:
            assert_logits(engine, model, prompt)
        assert_answers(engine, oracle, asked, 24)
        assert_answers(engine, oracle, asked, 24, batch=1)  # all from the cache
        assert not engine.engine.scheduler.check()
    with offline(path, chunked_prefill_size=16, **changes) as engine:
        assert_logits(engine, model, asked[-1])
        assert_answers(engine, oracle, asked, 12)
    with offline(path, disable_radix_cache=True, **changes) as engine:
        assert_answers(engine, oracle, asked[:3], 12, batch=1)


def assert_reference(model: Any, folder: Path, limit: float = LIMIT / 10) -> None:
    """The network over the oracle's operators, in float64, gives transformers' logits."""
    ids = prompts()[3]
    checkpoint = open_checkpoint(folder)
    try:
        got = reference_logits(checkpoint, checkpoint.config, ids)
    finally:
        checkpoint.close()
    assert relative(got, true_logits(model, ids)) < limit


def assert_on(model: Any, path: Path, backend: str) -> None:
    """assert_family on one backend: on cpu with a token alone and two prompts that begin alike,
    with a short prompt elsewhere."""
    some = (0, 2, 3) if backend == "cpu" else (1,)
    assert_family(model, path, backend=backend, asked=[prompts()[i] for i in some])


def error_with(model: Any, folder: Path, *, naming: Naming | None = None, **changes: Any) -> float:
    """How far the oracle's logits are from transformers' where the folder is read otherwise.

    naming: of its tensors instead of the family's. changes: of ModelConfig.
    """
    with contextlib.closing(open_checkpoint(folder)) as right:
        config = dataclasses.replace(right.config, **changes)
    naming = naming or FAMILIES[config.architecture].hf_names
    ids = prompts()[3]
    with contextlib.closing(Checkpoint(folder, Folder(folder), config, naming)) as wrong:
        return relative(reference_logits(wrong, wrong.config, ids), true_logits(model, ids))


def changed_error(model: Any, path: Path, change: Callable[[ModelConfig], ModelConfig]) -> float:
    """Relative L2 of a network that is not the model's: what a mistake would look like."""
    ids, checkpoint = prompts()[3], open_checkpoint(path)
    try:
        got = reference_logits(checkpoint, change(checkpoint.config), ids)
    finally:
        checkpoint.close()
    return relative(got, true_logits(model, ids))
