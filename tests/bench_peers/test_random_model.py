"""Folders of random weights in known shapes: whole, the same each time, loaded by us and others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from race.workloads import HIGHEST, LOWEST
from random_model import COMMON, SHAPES, write_model

from anychip.model.checkpoint import open_checkpoint
from anychip.model.families import FAMILIES, config_from_hf
from anychip.model.formats import dequantize
from anychip.text.load import open_tokenizer

SMALL = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": 500,
    "eos_token_id": 501,
}
PARAMETERS = {"qwen2.5-0.5b": 494_032_768, "llama-3.2-1b": 1_235_814_400}
"""As the models' own pages count them."""


def small(shape: str) -> dict:
    return {**COMMON, **SHAPES[shape], **SMALL}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_the_parameters_of_the_model_it_is_named_for(shape: str) -> None:
    config = config_from_hf({**COMMON, **SHAPES[shape]})
    family = FAMILIES[config.architecture]
    sources = family.sources(config, family.hf_names)
    parts = {part.tensor: math.prod(part.shape) for source in sources for part in source.parts}
    assert sum(parts.values()) == PARAMETERS[shape]
    assert LOWEST < HIGHEST < config.vocab_size


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_and_we_load_the_same_model(shape: str, tmp_path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write_model(small(shape), tmp_path)
    net = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    theirs = dict(net.state_dict())
    checkpoint = open_checkpoint(tmp_path)
    try:
        tied = checkpoint.config.tie_embeddings and checkpoint.config.dtype == "bfloat16"
        first = next(source for source in checkpoint.sources if "embed" in source.name)
        (ours,) = checkpoint.read(first)
        assert tied
        assert np.array_equal(dequantize(ours), theirs["model.embed_tokens.weight"].numpy())
    finally:
        checkpoint.close()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    mine = open_tokenizer(tmp_path)
    assert mine.encode("Hi!") == tokenizer.encode("Hi!", add_special_tokens=False)
    assert len(tokenizer) == SMALL["vocab_size"]
    assert all(tokenizer.decode([i]) for i in (300, 499, 500, 511))


def test_the_seed_alone_says_what_is_written(tmp_path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_model(small("llama-3.2-1b"), tmp_path / name, seed)
    first, same, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b", "c")
    )
    assert first == same != other
