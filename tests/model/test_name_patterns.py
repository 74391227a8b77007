"""Patterns of a checkpoint: as `re.match` has them, and in linear time whoever wrote them."""

from __future__ import annotations

import re

import pytest

from anychip.model.errors import CheckpointError
from anychip.model.quantized.target import Target
from anychip.patterns.errors import PatternError
from anychip.patterns.whole import Whole

NAMES = (
    *("", "lm_head", "model.layers.0.self_attn.q_proj", "model.layers.12.mlp.gate", "a$", "a|b"),
    *("model.layers.3.mlp.experts.7.down_proj", "visual.blocks.1.attn", "A", "a]b", "ab", "b"),
)


@pytest.mark.parametrize(
    "pattern",
    [
        *(".*", "", ".*lm_head", ".*q_proj$", "lm_head$", "^lm", "a", "a$|b$", "(a|b)$", "a|^b"),
        *(r"model\.layers\.\d+\.(mlp|self_attn)\..*_proj$", r".*mlp.gate$", r"a\$", r"a\\$"),
        *("[^]|]+$", r"[\]|]|b$", "[]a]+$", "(?i)a|lm$", r".*\.experts\.\d+\..*", "a{1,2}b?$"),
    ],
)
def test_what_python_finds_at_the_beginning_is_found(pattern):
    found = Whole(pattern)
    for name in NAMES:
        assert found.matches(name) == bool(re.match(pattern, name)), name


def test_a_hostile_pattern_costs_what_any_other_does():
    """Each of these would take Python's `re` longer than the universe is old."""
    name = "a" * 200 + "b"
    for pattern in ("(a+)+$", "(a|a)*$", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x", "(a?){200}c"):
        found = Whole(pattern)
        assert not found.matches(name)
        moves = sum(len(one._moves) for one in found._alternatives)
        assert moves <= len(name)


@pytest.mark.parametrize("pattern", ["a$b", "(?=a)", r"(a)\1", "a" * 300, "(a{1,99}){1,99}", "("])
def test_what_needs_more_is_refused(pattern):
    with pytest.raises(PatternError):
        Whole(pattern)
    with pytest.raises(CheckpointError, match="quantization_config: the pattern 're:"):
        Target("re:" + pattern)


def test_a_name_without_a_pattern_is_the_whole_name():
    assert Target("lm_head").names("lm_head") and not Target("lm_head").names("lm_heads")
    assert Target("re:lm_head").names("lm_heads") and Target("Linear").text == "Linear"
