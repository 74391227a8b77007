"""Rotary tables against transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny_models as tiny
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError
from anychip.model.families import config_from_hf
from anychip.model.rope import cos_sin_table, inverse_frequencies
from anychip.model.rope_config import RopeConfig

SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "llama3": {**tiny.LLAMA3, "original_max_position_embeddings": 8192},
}
ULP = 2.0**-23


def both(kind, theta, head_dim):
    """transformers' rotary module, and ours from the config that it would write."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=16384,
        rope_parameters={**SCALINGS[kind], "rope_theta": theta},
    )
    settings = {**config.to_dict(), "architectures": ["LlamaForCausalLM"]}
    return LlamaRotaryEmbedding(config), config_from_hf(settings).rope


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize(
    ("theta", "head_dim"), [(10000.0, 16), (100000.0, 64), (500000.0, 128), (1e6, 96)]
)
def test_frequencies_equal_transformers(kind, theta, head_dim):
    module, rope = both(kind, theta, head_dim)
    ours, theirs = inverse_frequencies(rope), module.inv_freq.numpy()
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=2 * ULP, atol=0)
    assert np.count_nonzero(ours != theirs) <= head_dim // 16


@pytest.mark.parametrize("kind", SCALINGS)
def test_tables_equal_transformers(kind):
    module, rope = both(kind, 100000.0, 64)
    positions = 9000
    cos, sin = module(torch.zeros(1), torch.arange(positions)[None])
    table = cos_sin_table(rope, positions)
    assert (table.shape, table.dtype) == ((positions, 64), np.float32)
    equal = inverse_frequencies(rope) == module.inv_freq.numpy()
    np.testing.assert_allclose(table[:, :32][:, equal], cos[0, :, :32][:, equal], atol=2 * ULP)
    np.testing.assert_allclose(table[:, 32:][:, equal], sin[0, :, :32][:, equal], atol=2 * ULP)
    np.testing.assert_allclose(table[:, :32], cos[0, :, :32], atol=positions * ULP)


def test_scalings_differ_from_each_other():
    tables = [cos_sin_table(both(kind, 500000.0, 64)[1], 64) for kind in SCALINGS]
    assert not np.allclose(tables[0], tables[1], atol=1e-3)
    assert not np.allclose(tables[0], tables[2], atol=1e-3)


def test_gguf_factors_equal_llama3_scaling(tmp_path):
    gguf = open_checkpoint(tiny.make_gguf(tmp_path, rope_scaling=tiny.LLAMA3)).config.rope
    folder = open_checkpoint(tiny.make_hf_folder(tmp_path, rope_scaling=tiny.LLAMA3)).config.rope
    assert gguf.factors is not None and len(gguf.factors) == tiny.HEAD_DIM // 2
    assert (gguf.kind, folder.kind) == ("default", "llama3")
    np.testing.assert_allclose(
        inverse_frequencies(gguf), inverse_frequencies(folder), rtol=4 * ULP, atol=0
    )
    plain = inverse_frequencies(RopeConfig(10000.0, tiny.HEAD_DIM))
    assert not np.allclose(inverse_frequencies(gguf), plain, rtol=1e-3)


@pytest.mark.parametrize("factors", [(1.0,) * 3, (1.0,) * 7 + (0.0,), (1.0,) * 7 + (np.nan,)])
def test_unsound_factors(factors):
    with pytest.raises(CheckpointError, match="factor"):
        RopeConfig(10000.0, 16, factors=factors)
