"""A config.json leaves out what equals the default of its class: ours are the same."""

from __future__ import annotations

import pytest

from anychip.model.families import FAMILIES, config_from_hf
from families.checked_family import SIZES

FAMILIES_HERE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2")
FAMILIES_HERE += ("granite", "smollm3")


@pytest.mark.parametrize("name", FAMILIES_HERE)
def test_what_is_left_out_is_the_default_of_transformers(name):
    import transformers

    network = FAMILIES[name].hf_class
    given = {k: v for k, v in SIZES.items() if k != "tie_word_embeddings"}
    given |= {"num_hidden_layers": 36, "num_attention_heads": 2, "num_key_value_heads": 1}
    whole = getattr(transformers, network).config_class(**given).to_dict()
    of = {"architectures": [network]}
    assert config_from_hf({**given, **of}) == config_from_hf({**whole, **of})
