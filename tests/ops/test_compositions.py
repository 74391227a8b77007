"""Every recipe equals the oracle on every case, and comes down to primitives."""

from __future__ import annotations

import numpy as np
import pytest
from eager import FLOATS, run_recipe

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.signature import Tier
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from anychip.ops.compositions import COMPOSITIONS, attention


def test_all_but_primitives_have_a_recipe():
    composed = {n for n, s in CATALOGUE.items() if s.tier is not Tier.PRIMITIVE}
    assert set(COMPOSITIONS) == composed


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", sorted(COMPOSITIONS))
def test_recipe_equals_oracle(op, dtype):
    for case in cases(op):
        case = case.with_dtype(dtype)
        outputs, _, _ = run_recipe(case)
        verdict = check_case(case, outputs)
        assert verdict.ok, f"{case.name}: {verdict.text}"


@pytest.mark.parametrize("op", sorted(COMPOSITIONS))
def test_recipe_gives_fresh_contiguous_values(op):
    for case in cases(op):
        _, _, values = run_recipe(case)
        given = [v for v in case.inputs.values() if isinstance(v, np.ndarray)]
        for value in values:
            assert value.is_contiguous
            assert not any(np.shares_memory(value.array, array) for array in given)


@pytest.mark.parametrize("op", sorted(COMPOSITIONS))
def test_recipe_ends_in_primitives(op):
    """EagerOps computes primitives alone: whatever else a recipe calls is expanded again."""
    for case in cases(op):
        _, calls, _ = run_recipe(case)
        assert any(CATALOGUE[name].tier is Tier.PRIMITIVE for name in calls)
        assert op not in calls[1:]


def test_attention_in_many_tiles_equals_one(monkeypatch):
    case = next(c for c in cases("paged_attention") if c.name == "mixture")
    whole, _, _ = run_recipe(case)
    monkeypatch.setattr(attention, "TILE_BYTES", 4000)
    tiled, calls, _ = run_recipe(case)
    assert calls.count("batched_matmul") > 4
    assert check_case(case, tiled).ok
    np.testing.assert_allclose(tiled["y"], whole["y"], rtol=1e-5, atol=1e-6)


def test_attention_of_a_row_does_not_see_the_batch():
    """What other rows hold, NaN included, does not reach a row."""
    case = next(c for c in cases("paged_attention") if c.name == "decode")
    before, _, _ = run_recipe(case)
    cache = case.inputs["cache"]
    mine = case.inputs["page_table"][1]
    others = np.setdiff1d(np.arange(len(cache.k)), mine[mine > 0])
    cache.k[others], cache.v[others] = 1e3, np.nan
    after, _, _ = run_recipe(case)
    assert np.isfinite(after["y"][1]).all()
    np.testing.assert_array_equal(after["y"][1], before["y"][1])


def test_unknown_activation_is_named():
    case = next(c for c in cases("mlp_block") if c.name == "gelu_tanh")
    case.attrs["activation"] = "relu"
    with pytest.raises(ValueError, match="relu"):
        run_recipe(case)
