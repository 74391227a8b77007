"""The operator level: what it asks, of whom, and what it makes of bounds, layouts and limits.

That each kind of defect is caught is shown by test_defective_chips.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anychip.chips.cpu.registration import CpuChip
from anychip.chips.fake.registration import FakeChip
from anychip.conform import operators
from anychip.conform.index import CHECKS
from anychip.conform.operator_pages import repaged
from anychip.conform.operator_sampling import chi_square
from anychip.conform.proof import Level, Status, prove
from anychip.contract.cache import CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipLayer, invalid
from anychip.contract.operators import DtypeRow
from anychip.contract.signature import ArgKind
from anychip.ops.cases import cases
from anychip.ops.oracle import CacheArrays
from conform.defective import chip_with, on_output, subject_of

GOOD = {Status.PASS, Status.UNSUPPORTED}
CACHE_OPS = ("kv_write", "kv_copy_pages", "paged_attention", "latent_write")


def proof(subject, key):
    """What one check finds."""
    try:
        return prove(next(c for c in operators.checks(subject) if c.key == key), subject)
    finally:
        subject.close()


def of(cls, key, **options):
    return proof(subject_of(cls, **options), key)


def changed(op, **fields):
    """A chip whose implementation of one operator has other fields."""
    return chip_with({op: lambda chip, implementation: replace(implementation, **fields)})


def facts(cls=FakeChip, **fields):
    """A chip that declares other capabilities."""

    class Declaring(cls):
        def capabilities(self):
            return replace(super().capabilities(), **fields)

    return Declaring


def test_every_id_of_the_level_is_asked_about_in_a_fixed_order():
    found = operators.checks(subject_of(FakeChip))
    assert [c.key for c in found] == [c.key for c in operators.checks(subject_of(CpuChip))]
    assert len({c.key for c in found}) == len(found)
    assert {c.id for c in found} == {i for i, (lv, _) in CHECKS.items() if lv is Level.OPERATORS}
    for id in ("R1", "O1", "O2"):
        assert [c.subject for c in found if c.id == id] == list(CATALOGUE)
    optioned = [op for op, s in CATALOGUE.items() if s.attrs or any(a.optional for a in s.inputs)]
    assert [c.subject for c in found if c.id == "O3"] == optioned


@pytest.mark.parametrize("op", ["copy", "argmax", "linear", "kv_write", "mlp_block", "sample"])
@pytest.mark.parametrize("cls", [FakeChip, CpuChip])
def test_no_check_of_an_operator_accuses_a_sound_chip(cls, op):
    subject = subject_of(cls)
    for check in operators.checks(subject):
        if check.subject == op and check.id != "O9":
            found = prove(check, subject)
            assert found.status in GOOD, f"{check.key}: {found.text}"
    subject.close()


class TestServed:
    def test_required_operator_that_is_composed_is_slow_and_passes(self):
        found = of(FakeChip, "R1 rms_norm", primitives_only="true")
        assert found.status is Status.PASS
        assert "too slow to serve" in found.text

    def test_recipe_without_its_primitive_is_missing_and_names_it(self):
        found = of(FakeChip, "R1 rms_norm", without="rms_norm,rsqrt")
        assert found.status is Status.MISSING
        assert "'rsqrt'" in found.text

    def test_dtype_that_no_row_covers_is_missing_and_named(self):
        rows = (DtypeRow({"X": ("float32", "bfloat16")}),)
        found = of(changed("exp", dtypes=rows), "R1 exp")
        assert found.status is Status.MISSING
        assert "float16" in found.text

    def test_recipe_cannot_serve_a_cache_of_the_chips_own_layout(self):
        found = of(facts(cache_layout="OWN"), "R1 kv_write")
        assert found.status is Status.MISSING
        assert "OWN" in found.text

    @pytest.mark.parametrize("cls", [FakeChip, CpuChip])
    def test_cache_with_heads_before_slots_is_written_and_read(self, cls):
        subject = subject_of(facts(cls, cache_layout="HND"))
        asked = [c for c in operators.checks(subject) if c.subject in CACHE_OPS or c.id == "O4"]
        assert {c.id for c in asked} >= {"R1", "O1", "O2", "O4"}
        for check in asked:
            if check.id != "O9":
                found = prove(check, subject)
                assert found.status in GOOD, f"{check.key}: {found.text}"
                assert "layout" not in found.text
        subject.close()

    def test_cache_whose_heads_and_slots_are_confused_is_found(self):
        def confused(chip, implementation):
            def prepare(call):
                view = call.inputs["cache"]
                strides = replace(view.spec, group=replace(view.spec.group, layout="NHD")).strides
                halves = (h.view(h.shape, strides) for h in (view.k, view.v))
                other = CacheView(view.spec, *halves)
                return implementation.prepare(replace(call, inputs={**call.inputs, "cache": other}))

            return replace(implementation, prepare=prepare)

        cls = facts(chip_with({"kv_write": confused}), cache_layout="HND")
        assert of(cls, "O1 kv_write").status is Status.FAIL


def rows_of(call):
    return call.inputs["x"].shape[0]


class TestRight:
    def test_size_at_a_declared_bound_is_run(self):
        """Right everywhere but at the largest size that it says it covers, which no grid has."""

        def spoil(y):
            if y.shape[0] == 3000:
                y[-1] = 0

        def bounded(chip, implementation):
            wrong = on_output("y", spoil)(chip, implementation)
            return replace(wrong, when=lambda c: "too many" if rows_of(c) > 3000 else None)

        found = of(chip_with({"rms_norm": bounded}), "O1 rms_norm")
        assert found.status is Status.FAIL
        assert "T=3000" in found.text

    def test_declared_row_that_is_declined_throughout_is_inconclusive(self):
        def when(call):
            return "not today" if call.inputs["x"].dtype is DType.FLOAT16 else None

        found = of(changed("exp", when=when), "O1 exp")
        assert found.status is Status.INCONCLUSIVE
        assert "float16" in found.text
        assert "not today" in found.text

    def test_tolerance_above_1_is_told(self):
        found = of(changed("exp", tolerance=4.0), "O1 exp")
        assert found.status is Status.PASS
        assert "tolerance 4 declared" in found.text
        assert found.figures["tolerance"] == 4.0

    def test_what_a_case_raises_is_told_with_the_case(self):
        def raising(chip, implementation):
            def prepare(call):
                raise invalid("fake", ChipLayer.OPERATORS, "no")

            return replace(implementation, prepare=prepare)

        found = of(chip_with({"exp": raising}), "O1 exp")
        assert found.status is Status.FAIL
        assert "fake.exp, 0x5" in found.text

    def test_no_call_has_more_tokens_than_a_step_may(self):
        def when_more_than_100(chip, implementation):
            def prepare(call):
                assert call.inputs["x"].shape[0] <= 100
                return implementation.prepare(call)

            return replace(implementation, prepare=prepare)

        class Small(chip_with({"rms_norm": when_more_than_100})):
            def capabilities(self):
                return replace(super().capabilities(), max_tokens=100)

        assert of(Small, "O1 rms_norm").status is Status.PASS


class TestCaches:
    @pytest.mark.parametrize("key", ["O1 kv_write", "O3 paged_attention", "O4 cache"])
    def test_only_declared_page_sizes_are_asked(self, key):
        def only_8(chip, implementation):
            def prepare(call):
                assert call.inputs["cache"].spec.group.page_size == 8
                return implementation.prepare(call)

            return replace(implementation, prepare=prepare)

        class Eight(chip_with(dict.fromkeys(CACHE_OPS, only_8))):
            def capabilities(self):
                few = (DType.FLOAT32,)
                same = super().capabilities()
                return replace(same, page_sizes=(8,), activation_dtypes=few, cache_dtypes=few)

        found = of(Eight, key)
        assert found.status is Status.PASS, found.text

    @pytest.mark.parametrize("op", ["paged_attention", "attention_block", "kv_write"])
    @pytest.mark.parametrize("size", [3, 32])
    def test_pages_of_another_size_hold_the_same(self, op, size):
        for case in cases(op):
            other = repaged(case, size)
            assert other.inputs["cache"].page_size == size
            pairs = zip(case.expected().outputs, other.expected().outputs, strict=True)
            for before, after in pairs:
                np.testing.assert_allclose(after, before)

    def test_layout_of_the_chips_own_is_judged_through_attention_alone(self):
        class Own(FakeChip):
            def __init__(self, values):
                super().__init__(values)
                table = self.operators.implementations
                free = tuple(replace(i, when=lambda call: None) for i in table)
                self.operators = replace(self.operators, implementations=free)

            def capabilities(self):
                return replace(super().capabilities(), cache_layout="OWN", page_sizes=(16,))

        assert of(Own, "O4 cache").status is Status.PASS
        assert of(Own, "R1 paged_attention").status is Status.PASS
        for op in ("kv_write", "latent_write", "latent_attention"):
            found = of(Own, f"O1 {op}")
            assert found.status is Status.UNSUPPORTED, op
            assert "O4" in found.text


class TestScratchAndMemory:
    def test_workspace_that_shrinks_is_found(self):
        found = of(changed("exp", workspace=lambda call: 4096 - rows_of(call)), "O11 exp")
        assert found.status is Status.FAIL
        assert "shrinks" in found.text

    def test_offsets_beyond_the_memory_are_not_judged(self):
        found = of(FakeChip, "O9 copy", memory="64M")
        assert found.status is Status.INCONCLUSIVE
        assert "4.4 GB" in found.text

    @pytest.mark.parametrize("op", ["rms_norm", "kv_write", "paged_attention", "gather_rows"])
    def test_a_sound_chip_reaches_beyond_2_to_the_31_elements(self, op):
        found = of(CpuChip, f"O9 {op}", memory="0")
        assert found.status is Status.PASS or "GB" in found.text, found.text

    @pytest.mark.parametrize("key", ["O4 cache", "O9 kv_write", "O11 linear", "O12 lm_head"])
    def test_nothing_stays_allocated(self, key):
        subject = subject_of(FakeChip)
        before = subject.chip.memory.info().used
        prove(next(c for c in operators.checks(subject) if c.key == key), subject)
        assert subject.chip.memory.info().used == before
        subject.close()


class TestChiSquare:
    def test_even_draws_of_an_even_distribution_fit(self):
        assert chi_square(np.full(40, 50), np.full(40, 1 / 40)).ok

    def test_a_tenth_too_much_does_not_fit(self):
        counts = np.full(40, 50)
        counts[:20] += 10
        counts[20:] -= 10
        assert not chi_square(counts, np.full(40, 1 / 40)).ok

    def test_one_token_of_probability_0_does_not_fit(self):
        p = np.full(40, 1 / 39)
        p[7] = 0
        counts = np.full(40, 50)
        counts[7] = 1
        assert not chi_square(counts, p).ok

    def test_the_quantile_is_that_of_the_tables(self):
        fit = chi_square(np.full(11, 100), np.full(11, 1 / 11))
        assert fit.quantile == pytest.approx(29.59, rel=0.01)  # 10 degrees, 0.999


def test_index_arguments_are_those_of_the_signatures():
    asked = {c.subject for c in operators.checks(subject_of(FakeChip)) if c.id == "O8"}
    assert asked == {
        op for op, s in CATALOGUE.items() if any(a.kind is ArgKind.INDEX for a in s.inputs)
    }


def test_repaged_copies_keep_the_numbers_of_their_pages_and_tell_them_apart():
    for case in cases("kv_copy_pages"):
        held = repaged(case, 5).inputs["cache"]
        assert isinstance(held, CacheArrays)
        assert held.k.shape[:2] == (len(case.inputs["cache"].k), 5)
        assert len({page.tobytes() for page in held.k}) == len(held.k)
