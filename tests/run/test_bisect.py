"""`anychip bisect`: the operator that changes the text is named, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

import crooked_chip
import doubling_chip
from anychip.config import ServeConfig
from anychip.engine.bisect import CannotJudge
from anychip.engine.bisect_evidence import Verdict
from anychip.engine.bisect_run import Finding, Question, bisect
from anychip.engine.narrow import smallest_set
from anychip.model.tiny import write_tiny

PRIMITIVES = {"primitives_only": "true"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bisected")
    with crooked_chip.installed(folder), doubling_chip.installed(folder / "site"):
        yield write_tiny(folder, layers=1)


def compared(model: Path, own: dict[str, str], *, tokens: int = 8, **changes) -> Finding:
    """The crooked chip with these options against a sound one."""
    reference = changes.pop("reference", {})
    own, reference = ({**o, "factor": "-3"} if "wrong" in o else o for o in (own, reference))
    backend = changes.pop("backend", "crooked")
    config = ServeConfig(
        model_path=str(model),
        backend=backend,
        chip_option=own,
        cache_dir=str(model.parent / "cache"),
        **changes,
    )
    question = Question(config, "crooked", "hello there", tokens, chip_option_ref=reference)
    return bisect(question, lambda line: None)


def named(found: Finding) -> list[str]:
    return [culprit.op for culprit in found.culprits]


def test_equal_chips_have_the_same_text(model: Path) -> None:
    found = compared(model, {})
    assert found.exit_code == 0
    assert found.text == found.text_ref
    assert found.trials == 0


def test_other_page_size_chunk_and_poison_are_no_difference(model: Path) -> None:
    options = {"poison_seed": "3"}
    found = compared(model, options, page_size=4, chunked_prefill_size=5)
    assert found.exit_code == 0


@pytest.mark.parametrize("op", ["rms_norm", "rotary_embedding", "paged_attention"])
def test_broken_operator_is_named_as_a_defect(model: Path, op: str) -> None:
    found = compared(model, {"wrong": op})
    assert found.exit_code == 1
    assert named(found) == [op]
    assert found.culprits[0].implementations == (f"fake.{op}",)
    assert found.evidence.verdict is Verdict.DEFECT
    assert f"{op} diverges from the oracle" in str(found)


def test_two_broken_operators_are_both_named(model: Path) -> None:
    found = compared(model, {"wrong": "rotary_embedding+paged_attention"})
    assert named(found) == ["rotary_embedding", "paged_attention"]
    assert len(found.evidence.own) == 2


def test_broken_primitive_is_found_within_a_composed_operator(model: Path) -> None:
    found = compared(model, {**PRIMITIVES, "wrong": "rsqrt"}, tokens=2)
    assert named(found) == ["rsqrt"]
    assert found.evidence.verdict is Verdict.DEFECT


def test_broken_reference_is_told_from_a_broken_chip(model: Path) -> None:
    found = compared(model, {}, reference={"wrong": "rms_norm"})
    assert named(found) == ["rms_norm"]
    assert found.evidence.verdict is Verdict.REFERENCE


def test_difference_outside_the_operators_is_told_as_that(model: Path) -> None:
    found = compared(model, {}, backend="doubling")
    assert found.exit_code == 2
    assert found.culprits == ()
    assert "no operator of doubling changes the text" in found.outcome


def test_wrong_fused_operator_with_right_parts_is_itself_at_fault(model: Path) -> None:
    found = compared(model, {"fused": "true", "wrong": "mlp_block"})
    assert named(found) == ["mlp_block"]
    assert found.notes == ("composed of smaller operators, mlp_block gives the reference's text",)


def test_wrong_part_of_a_wrong_fused_operator_is_named(model: Path) -> None:
    found = compared(model, {"fused": "true", "wrong": "mlp_block+silu_and_mul"})
    assert named(found) == ["silu_and_mul"]
    assert found.notes == ("part of mlp_block (crooked.mlp_block)",)


def test_fused_operator_without_parts_is_named_all_the_same(model: Path) -> None:
    options = {"fused": "true", "wrong": "mlp_block", "without": "silu_and_mul,silu"}
    found = compared(model, options)
    assert named(found) == ["mlp_block"]
    assert "cannot be looked into" in found.notes[0]


def test_reference_that_cannot_page_alike_is_refused(model: Path) -> None:
    with pytest.raises(ValueError, match="--page-size 2: chip 'cpu' has page sizes 1, 16"):
        config = ServeConfig(model_path=str(model), backend="fake", page_size=2)
        bisect(Question(config, "cpu", "hello", 2), lambda line: None)


def test_empty_prompt_cannot_be_judged(model: Path) -> None:
    config = ServeConfig(model_path=str(model), backend="fake")
    with pytest.raises(CannotJudge, match="no tokens"):
        bisect(Question(config, "fake", "", 2), lambda line: None)


NAMES = tuple("abcdefghij")


@pytest.mark.parametrize("guilty", ["a", "j", "e", "bc", "aj", "cfh", "abcdefghij"])
def test_smallest_set_is_found_in_few_trials(guilty: str) -> None:
    tried: list[frozenset[str]] = []

    def same(some: frozenset[str]) -> bool:
        tried.append(some)
        return set(guilty) <= some

    assert smallest_set(NAMES, same) == tuple(guilty)
    assert len(tried) <= 5 * len(guilty) + len(guilty)


def test_one_of_two_ways_to_make_a_difference_go_away_is_found() -> None:
    found = smallest_set(NAMES, lambda some: bool(some & {"d", "g"}))
    assert found == ("d",)
