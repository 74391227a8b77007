"""The grid: every operator, every dimension really varied, every case sharp enough to fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from eager import FLOATS, _wrapped

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.signature import infer_outputs
from anychip.ops.cases import cases
from anychip.ops.cases.grid import DIMENSIONS, NO_OUTLIERS, blank, grid, outliers, sized
from anychip.ops.check import check_case
from anychip.ops.composed_error import error_limit
from anychip.ops.on_numpy import run_on_numpy
from anychip.ops.oracle import CacheArrays, filled

ALL = sorted(CATALOGUE)
SLOW = {
    *("attention_block", "paged_attention", "lm_head", "mlp_block", "grouped_linear"),
    *("expert_mlp", "sink_attention", "latent_attention", "expanded_attention"),
    "gated_delta_rule",
}
"""Whose large cases are left to the conformance runs on chips."""

ONE_ELEMENT = "rows of one element have one answer"
NO_CONTROL = {
    **dict.fromkeys(("argmax", "greedy", "sample", "softmax", "log_softmax"), ONE_ELEMENT),
    **dict.fromkeys(("token_logprobs", "top_logprobs", "route_experts"), ONE_ELEMENT),
    "arange": "its length alone decides the result, and that shows in the shape",
    "histogram": "everything falls into one bin",
}
"""Operators of which some case with elements has no control -> why."""

SHAPES_ONLY = {"dtype": "float16", "shape": (2, 3), "length": 5, "bins": 5, "k": 3, "n": 2}
"""Attributes that change what the outputs look like -> another value."""
REDUNDANT = {
    ("attention_block", "heads"): "the rows of qkv and the cache's shape fix it",
    ("grouped_linear", "experts_count"): "the rows of the weight go with it",
    ("expert_mlp", "experts_count"): "the rows of both weights go with it",
    ("latent_attention", "value_dim"): "the result is as wide",
    ("expanded_attention", "nope_dim"): "the result is as wide as what it leaves",
}


def looks(case):
    """Shapes of a case's inputs and outputs, attributes, and where its sequences are."""
    found = {}
    for name, value in case.inputs.items():
        is_cache = isinstance(value, CacheArrays)
        found[name] = None if value is None else value.k.shape if is_cache else value.shape
    lengths = case.inputs["kv_lens"].tolist() if "kv_lens" in case.inputs else []
    if "state_from" in case.inputs:
        lengths = case.inputs["positions"].tolist()
    return found, specs_of(case), case.attrs, lengths


def specs_of(case):
    signature = CATALOGUE[case.op]
    given = {a.name: _wrapped(a, case.inputs.get(a.name)) for a in signature.inputs}
    specs = {n: None if v is None else v.spec for n, v in given.items()}
    return infer_outputs(signature, specs, filled(case.op, case.attrs))


def is_empty(case):
    """Whether it neither gives nor writes anything."""
    arrays = [v for v in case.inputs.values() if isinstance(v, np.ndarray)]
    nothing_goes_in = not arrays or 0 in [a.size for a in arrays]
    return nothing_goes_in and sum(s.size for s in specs_of(case)) == 0


def test_every_operator_has_dimensions():
    assert set(DIMENSIONS) == set(CATALOGUE)
    assert all(DIMENSIONS.values())


@pytest.mark.parametrize("op", ALL)
def test_names_are_unique_and_say_the_sizes(op):
    names = [c.name for c in grid(op)]
    assert len(set(names)) == len(names)
    assert {f"{d.name}={s}" for d in DIMENSIONS[op] for s in d.sizes if s != d.default} <= set(
        names
    )


@pytest.mark.parametrize("op", ALL)
def test_every_size_of_every_dimension_changes_the_call(op):
    for dimension in DIMENSIONS[op]:
        tried = (dimension.default, *dimension.sizes)
        seen = {repr(looks(blank(op, **{dimension.name: size}))) for size in tried}
        assert len(seen) == len(set(tried)) > 1, dimension.name


@pytest.mark.parametrize("op", sorted(set(ALL) - {"arange", "fill"}))
def test_rows_reach_beyond_1024_and_none(op):
    sizes = [s for d in DIMENSIONS[op] if d.name in "TRMN" for s in d.sizes]
    assert 0 in sizes
    # Pairs of tokens over long vectors: a recipe is given fewer of them.
    fewer = ("kv_copy_pages", "latent_attention", "expanded_attention")
    assert max(sizes) > (256 if op in fewer[1:] else 1024) or op == fewer[0]


@pytest.mark.parametrize("op", ["embedding", "linear", "lm_head", "mlp_block", "attention_block"])
def test_widths_of_weights_fit_quantized_blocks(op):
    width = next(d for d in DIMENSIONS[op] if d.name == "K")
    assert width.default % 32 == 0
    assert {32, 96, 256, 576} <= set(width.sizes)


@pytest.mark.parametrize("op", ALL)
def test_a_blank_case_looks_like_the_real_one(op):
    for dimension in DIMENSIONS[op]:
        size = {dimension.name: dimension.sizes[1]}
        assert looks(blank(op, **size)) == looks(sized(op, **size))


@pytest.mark.parametrize("op", ALL)
def test_contents_follow_from_the_sizes(op):
    name = DIMENSIONS[op][0].name
    first, second = sized(op, **{name: 7}), sized(op, **{name: 7})
    for key, value in first.inputs.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, second.inputs[key])


def middle(op):
    """The grid of an operator, its costly cases left out."""
    for case in grid(op):
        sizes = [int(word) for word in case.name.replace("=", " ").split() if word.isdigit()]
        if op not in SLOW or max(sizes, default=0) < 100:
            yield case


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
@pytest.mark.parametrize("op", ALL)
def test_the_composed_path_passes_and_every_control_would_not(op, dtype):
    without = 0
    for case in middle(op):
        case = case.with_dtype(dtype)
        verdict = check_case(case, run_on_numpy(case), bound=error_limit(case))
        assert verdict.ok, f"{case.name}: {verdict.text}"
        assert verdict.conclusive or case.control is None, f"{case.name}: {verdict.text}"
        without += case.control is None and not is_empty(case)
    assert bool(without) == (op in NO_CONTROL)


@pytest.mark.parametrize("op", ALL)
def test_outliers_pass_in_every_dtype_or_have_a_reason(op):
    case = outliers(op)
    assert (case is None) == (op in NO_OUTLIERS)
    for dtype in FLOATS if case else ():
        other = case.with_dtype(dtype)
        verdict = check_case(other, run_on_numpy(other), bound=error_limit(other))
        assert verdict.ok and verdict.conclusive, verdict.text


@pytest.mark.parametrize("op", sorted(set(ALL) - set(NO_OUTLIERS)))
def test_outliers_are_there(op):
    arrays = []
    for value in outliers(op).inputs.values():
        arrays += [value.k, value.v] if isinstance(value, CacheArrays) else [value]
    largest = max(abs(a).max() for a in arrays if a is not None and a.size and a.dtype.kind == "f")
    assert largest == 1e4


def changes_exactly(case):
    return set(case.control.inputs) | set(case.control.attrs)


def options():
    for op, signature in sorted(CATALOGUE.items()):
        yield from ((op, a.name) for a in signature.inputs if a.optional)
        yield from ((op, a.name) for a in signature.attrs if a.name not in SHAPES_ONLY)


@pytest.mark.parametrize(("op", "name"), [o for o in options() if o not in REDUNDANT])
def test_every_attribute_and_optional_input_matters_alone(op, name):
    found = [c for c in cases(op) if c.control is not None and changes_exactly(c) == {name}]
    assert found
    for case in found:
        verdict = check_case(case, run_on_numpy(case), bound=error_limit(case))
        assert verdict.conclusive, f"{case.name}: {verdict.text}"


SHAPED = [(op, a.name) for op in ALL for a in CATALOGUE[op].attrs if a.name in SHAPES_ONLY]


@pytest.mark.parametrize(("op", "name"), SHAPED)
def test_every_other_attribute_changes_what_the_outputs_look_like(op, name):
    case = sized(op)
    other = replace(case, attrs={**case.attrs, name: SHAPES_ONLY[name]})
    assert specs_of(other) != specs_of(case)


def test_unknown_dimensions_and_sizes_that_do_not_go_together_are_named():
    with pytest.raises(ValueError, match="linear has no dimension 'Z': it has T, K, N, bias"):
        sized("linear", Z=3)
    with pytest.raises(ValueError, match="T = -1 must be 0 or more"):
        sized("linear", T=-1)
    with pytest.raises(ValueError, match="K = 0 must be 1 or more"):
        sized("linear", K=0)
    with pytest.raises(ValueError, match="still = 64 leaves nothing of D = 64"):
        sized("rotary_embedding", still=64)
    with pytest.raises(ValueError, match="do not fit into P = 5"):
        sized("scatter_rows", T=6, P=5)
    with pytest.raises(KeyError):
        sized("convolution")


def test_quantized_widths_and_odd_ones_keep_their_dtype():
    case = sized("linear", K=96, bias=1).with_dtype(DType.FLOAT16)
    assert case.inputs["weight"].dtype == np.float16
    assert case.inputs["bias"].dtype == np.float32
