"""The reference: transformers' logits from the oracle alone, float64 from end to end."""

from __future__ import annotations

import numpy as np
import pytest

import tiny_models
from anychip.contract.cache import CacheGroup, CacheSpec
from anychip.contract.dtype import DType
from anychip.model.checkpoint import open_checkpoint
from anychip.model.tiny import write_tiny
from anychip.ops.check import relative_l2
from anychip.ops.limits import ROUNDOFF
from anychip.ops.reference import by_recipe, interpret, undivided
from anychip.ops.trace import Ops
from anychip.ops.value import CacheRef, given
from anychip.run.reference import composed_logits, reference_logits

TOKENS = np.random.default_rng(0).integers(3, 384, 40).tolist()


def transformers_logits(model, tokens) -> np.ndarray:
    import torch

    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tied": False, "attention_bias": True, "mlp_bias": True},
        {"rope_scaling": tiny_models.LLAMA3},
    ],
    ids=["tied", "biases", "llama3"],
)
def test_reference_agrees_with_transformers(options, tmp_path):
    checkpoint = open_checkpoint(tiny_models.make_hf_folder(tmp_path, **options))
    found = reference_logits(checkpoint, checkpoint.config, TOKENS)
    wanted = transformers_logits(tiny_models.make_hf_model(**options), TOKENS)
    assert found.dtype == np.float64
    assert relative_l2(found, wanted) < 1e-5
    assert relative_l2(found, np.roll(wanted, 1, axis=0)) > 0.5


def test_a_cut_network_is_the_one_with_fewer_layers(tmp_path):
    whole = open_checkpoint(write_tiny(tmp_path, "q4_0"))
    small = open_checkpoint(write_tiny(tmp_path, "q4_0", layers=1))
    cut = reference_logits(whole, whole.config.cut(1), TOKENS)
    assert np.array_equal(cut, reference_logits(small, small.config, TOKENS))
    assert relative_l2(reference_logits(whole, whole.config, TOKENS), cut) > 0.5


def test_positions_are_rows_of_the_whole_and_the_past_alone_counts(tmp_path):
    checkpoint = open_checkpoint(write_tiny(tmp_path))
    config = checkpoint.config
    whole = reference_logits(checkpoint, config, TOKENS)
    few = reference_logits(checkpoint, config, TOKENS, positions=[39, 0, 7])
    assert relative_l2(whole[[39, 0, 7]], few) < 1e-12
    assert relative_l2(whole[:9], reference_logits(checkpoint, config, TOKENS[:9])) < 1e-12


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_composed_logits_are_rounded_by_their_dtype(dtype, tmp_path):
    checkpoint = open_checkpoint(write_tiny(tmp_path))
    reference = reference_logits(checkpoint, checkpoint.config, TOKENS)
    found = composed_logits(checkpoint, checkpoint.config, TOKENS, dtype)
    error = relative_l2(reference, found)
    assert ROUNDOFF[dtype] < error < 50 * ROUNDOFF[dtype]


def test_composed_logits_see_the_dtype_of_the_cache(tmp_path):
    checkpoint = open_checkpoint(write_tiny(tmp_path))
    reference = reference_logits(checkpoint, checkpoint.config, TOKENS)
    found = composed_logits(
        checkpoint, checkpoint.config, TOKENS, DType.FLOAT32, cache_dtype=DType.BFLOAT16
    )
    assert relative_l2(reference, found) > ROUNDOFF[DType.BFLOAT16]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "0 tokens: 1 to 16"),
        ([1] * 17, "17 tokens: 1 to 16"),
        ([384], "vocabulary of 384"),
        ([-1], "vocabulary of 384"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused(tokens, message, tmp_path):
    checkpoint = open_checkpoint(write_tiny(tmp_path, context=16))
    with pytest.raises(ValueError, match=message):
        reference_logits(checkpoint, checkpoint.config, tokens)


def traced(function, **shapes):
    """A program over float32 inputs of these shapes."""
    ops = Ops(undivided)
    symbols = {name: given("input", name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    ops.program.results["y"] = function(ops, **symbols)
    return ops.program


def test_nothing_is_rounded_between_two_operators():
    """1e8 + 1 - 1e8 is 0 in float32."""
    program = traced(lambda ops, a, b: ops.sub(ops.add(a, b), a), a=(3,), b=(3,))
    arrays = {"a": np.full(3, 1e8), "b": np.ones(3)}
    assert interpret(program, lambda kind, key: arrays[key])["y"].tolist() == [1.0] * 3
    rounded = {name: array.astype(np.float32) for name, array in arrays.items()}
    found = interpret(program, lambda kind, key: rounded[key], by_recipe)["y"]
    assert found.tolist() == [0.0] * 3
    assert found.dtype == np.float32


def test_views_read_what_they_view():
    def function(ops, a):
        turned = ops.neg(a).transpose(1, 0).narrow(0, 1, 2)
        return ops.copy(turned).reshape(6).narrow(0, 1, 3)

    array = np.arange(9.0).reshape(3, 3)
    found = interpret(traced(function, a=(3, 3)), lambda kind, key: array)["y"]
    assert found.tolist() == (-array.T[1:3].reshape(6)[1:4]).tolist()


@pytest.mark.parametrize("by", ["oracle", "recipe"])
def test_a_write_reaches_the_cache(by):
    group = CacheGroup(1, 1, 2, DType.FLOAT32, 4)
    ops = Ops(undivided)
    k = given("input", "k", (2, 1, 2), DType.FLOAT32)
    ops.kv_write(CacheRef(0, CacheSpec(group, 3)), k, k, given("index", "slots", (2,), DType.INT32))
    arrays = {
        "0.k": np.zeros((3, 4, 1, 2), np.float32),
        "0.v": np.zeros((3, 4, 1, 2), np.float32),
        "k": np.array([[[1, 2]], [[3, 4]]], np.float32),
        "slots": np.array([5, 0], np.int32),
    }
    answers = {"recipe": (by_recipe,), "oracle": ()}
    interpret(ops.program, lambda kind, key: arrays[key], *answers[by])
    assert arrays["0.k"][1, 1, 0].tolist() == [1, 2]
    assert arrays["0.v"][0, 0, 0].tolist() == [3, 4]
    assert np.count_nonzero(arrays["0.k"]) == 4
