"""Latent caches: one tensor a layer, values as a part of the keys, pages that move once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from strict_calls import host_bytes, opened, prepared

from anychip.chips.fake.registration import FakeChip
from anychip.contract.cache import HND, NHD, CacheGroup, CacheSpec, latent_view
from anychip.contract.dtype import DType
from anychip.contract.operators import OperatorTable
from anychip.contract.registration import read_options
from anychip.hostops import dtype_of
from anychip.ops.cases import cases
from anychip.ops.check import check_case
from anychip.ops.decide import Decider
from anychip.ops.oracle import latent_arrays
from anychip.ops.placed import place
from anychip.ops.recipe import Recipe
from anychip.plan import PageMove
from anychip.run.cache import allocate_cache, free_cache
from anychip.run.host_pages import HostPages

LAYERS, PAGE, DIM, LATENT = 2, 4, 10, 7
GROUP = CacheGroup(LAYERS, 1, DIM, DType.FLOAT32, PAGE, latent=LATENT)


class HeadsFirst(FakeChip):
    """Declares the other known layout."""

    def capabilities(self):
        return dataclasses.replace(super().capabilities(), cache_layout=HND)


@pytest.fixture
def chip():
    found = opened()
    yield found
    found.close()


def used(chip) -> int:
    return chip.memory.info().used


def filled(chip, caches, seed=3):
    """Random vectors in every layer, [pages, page size, 1, dim] each."""
    source = np.random.default_rng(seed)
    arrays = [source.normal(size=c.k.shape).astype(np.float32) for c in caches]
    for cache, array in zip(caches, arrays, strict=True):
        chip.memory.copy_in(cache.k, host_bytes(array))
    return arrays


def read(chip, tensor):
    found = np.zeros(tensor.shape, np.float32)
    chip.memory.copy_out(tensor, host_bytes(found))
    return found


def test_a_page_has_no_values_of_its_own():
    plain = dataclasses.replace(GROUP, latent=0)
    assert plain.page_bytes == 2 * GROUP.page_bytes == 2 * LAYERS * PAGE * DIM * 4
    assert CacheSpec(GROUP, 3).value_shape == (3, PAGE, 1, LATENT)
    assert CacheSpec(plain, 3).value_shape == (3, PAGE, 1, DIM)


@pytest.mark.parametrize(("heads", "latent"), [(2, 4), (1, DIM + 1), (1, -1)])
def test_sizes_that_do_not_fit_are_refused(heads, latent):
    with pytest.raises(ValueError, match="one KV head"):
        CacheGroup(1, heads, DIM, DType.FLOAT32, PAGE, latent=latent)


def test_memory_is_taken_once_and_given_back(chip):
    before = used(chip)
    caches = allocate_cache(chip.memory, GROUP, 5)
    assert len({id(c.k.buffer) for c in caches}) == LAYERS
    assert all(c.v.buffer is c.k.buffer and c.halves == (c.k,) for c in caches)
    arrays = filled(chip, caches)
    free_cache(chip.memory, caches)
    assert used(chip) == before and arrays[0].shape == (5, PAGE, 1, DIM)


def test_pages_go_to_the_host_and_back_whole(chip):
    caches = allocate_cache(chip.memory, GROUP, 4)
    before = filled(chip, caches)
    pages = HostPages(chip.memory, caches, slots=2)
    pages.run([PageMove(page=2, slot=1, to_host=True)])
    filled(chip, caches, seed=4)
    pages.run([PageMove(page=3, slot=1, to_host=False)])
    for cache, array in zip(caches, before, strict=True):
        np.testing.assert_array_equal(read(chip, cache.k)[3], array[2])
    free_cache(chip.memory, caches)


def test_values_are_a_view_in_either_layout(chip):
    for layout in (NHD, HND):
        spec = CacheSpec(dataclasses.replace(GROUP, layers=1, layout=layout), 3)
        (cache,) = allocate_cache(chip.memory, spec.group, 3)
        assert cache.v.shape == spec.value_shape and cache.v.strides == cache.k.strides
        assert latent_view(spec, cache.k).v.offset == cache.k.offset
        free_cache(chip.memory, (cache,))


def copy_case():
    return next(c for c in cases("kv_copy_pages") if c.inputs["cache"].latent)


def test_an_older_copy_of_pages_declines_and_its_recipe_does_it(chip):
    case = copy_case()
    impl, call = prepared(chip, case.op, case.inputs, case.attrs)
    older = dataclasses.replace(impl, latent=False)
    assert "the cache is latent" in older.declines(call.spec)
    assert impl.declines(call.spec) is None
    decider = Decider(OperatorTable((older,)))
    assert decider(call.spec).composed
    with Recipe(chip, case.op) as recipe, place(chip, case.op, case.inputs, case.attrs) as placed:
        placed.prepare(recipe)()
        assert check_case(case, placed.outcome()).ok


@pytest.mark.parametrize("op", ["kv_write", "paged_attention", "sink_attention"])
def test_operators_over_keys_and_values_refuse_it(chip, op):
    case = next(c for c in cases(op) if c.name not in ("no tokens", "one token"))
    held = case.inputs["cache"].k[:, :, :1]
    inputs = {**case.inputs, "cache": latent_arrays(np.ascontiguousarray(held), 4)}
    for name in {"k", "v"} & set(inputs):
        inputs[name] = np.ascontiguousarray(inputs[name][:, :1])
    with pytest.raises(ValueError, match=f"{op}: the cache is latent"):
        place(chip, op, inputs, case.attrs)
    assert dtype_of(held) is DType.FLOAT32


@pytest.mark.parametrize("op", ["sink_attention", "latent_attention", "latent_write"])
def test_recipes_read_heads_before_slots(op):
    """A chip of primitives whose pages hold heads first."""
    options = {"memory": "16M", "primitives_only": "true"}
    chip, tried = HeadsFirst.open(0, read_options(HeadsFirst, options)), 0
    for case in cases(op):
        with Recipe(chip, op) as recipe, place(chip, op, case.inputs, case.attrs) as placed:
            assert recipe.declines(placed.call.spec) is None
            placed.prepare(recipe)()
            verdict = check_case(case, placed.outcome())
            assert verdict.ok, f"{case.name}: {verdict.text}"
            tried += case.inputs["cache"].k.shape[2] > 1
    assert tried or op != "sink_attention"
    chip.close()
