"""OLMo 2 against transformers."""

from __future__ import annotations

import pytest

from anychip.model.errors import UnsupportedModel
from anychip.model.families import FAMILIES, config_from_hf
from families.checked_family import (
    BACKENDS,
    LIMIT,
    assert_on,
    assert_reference,
    error_with,
    make_model,
    save,
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_transformers(tmp_path, backend):
    model = make_model("Olmo2", num_hidden_layers=2)
    save(model, tmp_path)
    assert_reference(model, tmp_path)
    assert_on(model, tmp_path, backend)


def test_with_biases_and_as_many_keys_as_queries(tmp_path):
    model = make_model("Olmo2", attention_bias=True, num_key_value_heads=4)
    save(model, tmp_path)
    assert_reference(model, tmp_path)


def test_what_is_particular_would_be_missed(tmp_path):
    model = make_model("Olmo2")
    save(model, tmp_path)
    exchanged = FAMILIES["olmo2"].hf_names.called(
        attention_post_norm="post_feedforward_layernorm", mlp_post_norm="post_attention_layernorm"
    )
    assert error_with(model, tmp_path) < LIMIT / 10
    assert error_with(model, tmp_path, qk_norm="none") > 10 * LIMIT
    assert error_with(model, tmp_path, post_norms=False) > 10 * LIMIT
    assert error_with(model, tmp_path, naming=exchanged) > 10 * LIMIT


def test_its_successor_is_refused():
    settings = make_model("Olmo2").config.to_dict() | {"architectures": ["Olmo2ForCausalLM"]}
    with pytest.raises(UnsupportedModel, match="'sliding_window' = 4096"):
        config_from_hf({**settings, "sliding_window": 4096})
