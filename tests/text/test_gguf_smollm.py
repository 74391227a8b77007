"""SmolLM2 from its GGUF must give the ids of the published tokenizer."""

from __future__ import annotations

import pytest
from gguf import GGUFReader
from text_samples import TEXTS
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FIRST_TURN = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n"
)
FIRST_TURN_IDS = [
    *(1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519),
    *(28, 7018, 411, 407, 19712, 8182, 2, 198),
]


@pytest.fixture(scope="module")
def vocabulary(demo_model):
    fields = GGUFReader(demo_model).fields
    return [fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges")]


def published(vocabulary, *steps):
    """The tokenizer as its authors define it, from the same vocabulary, by another route."""
    tokens, rules = vocabulary
    merges = [tuple(rule.split(" ")) for rule in rules]
    vocab = {token: index for index, token in enumerate(tokens)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens[:17]])
    return core


@pytest.fixture(scope="module")
def reference(vocabulary):
    digits = pre_tokenizers.Digits(individual_digits=True)
    return published(vocabulary, digits, pre_tokenizers.ByteLevel(add_prefix_space=False))


@pytest.mark.parametrize("text", [*TEXTS, FIRST_TURN, "x".join(TEXTS)])
def test_ids_equal_the_published_definition(demo, reference, text):
    ids = demo.encode(text)
    assert ids == reference.encode(text).ids
    assert demo.decode(ids, skip_special_tokens=False) == text
    assert demo.decode(ids) == reference.decode(ids)


def test_known_ids(demo):
    assert demo.encode("12345") == [33, 34, 35, 36, 37]
    assert demo.encode(FIRST_TURN) == FIRST_TURN_IDS


def test_without_digit_splitting_the_ids_differ(demo, vocabulary):
    wrong = published(vocabulary, pre_tokenizers.ByteLevel(add_prefix_space=False))
    for text in ["for i in range(   12):", "\n    5 apples"]:
        assert wrong.encode(text).ids != demo.encode(text), text


def test_facts(demo):
    assert (demo.vocab_size, demo.bos_id, demo.eos_ids) == (49152, 1, frozenset({2}))
    assert demo.special_tokens["eos_token"] == "<|im_end|>"
    assert demo.chat_template is not None and "add_generation_prompt" in demo.chat_template
