"""A model of experts and sinks: what a chip brings of it, and every call against the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import crooked_chip
from answers.equality import config, greedy
from anychip.config import ServeConfig
from anychip.engine.build import checker_of
from anychip.engine.offline import OfflineEngine
from anychip.run.coverage import coverage
from families.checked_family import make_model, prompts, save

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPERATORS = {"route_experts", "expert_mlp", "sink_attention"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = make_model(
        "GptOss",
        num_hidden_layers=1,
        num_local_experts=3,
        num_experts_per_tok=2,
        head_dim=16,
        sliding_window=16,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    return save(model, tmp_path_factory.mktemp("experts"))


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_coverage_names_its_operators(folder, backend) -> None:
    report = coverage(ServeConfig(model_path=str(folder), backend=backend))
    assert {row.op for row in report.rows} >= OPERATORS
    assert report.missing == []


@pytest.fixture(scope="module", autouse=True)
def crooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with crooked_chip.installed(tmp_path_factory.mktemp("site")):
        yield


def _checked(folder: Path, kept: Path, backend: str, **changes: Any) -> Any:
    """What was found while a few tokens were answered."""
    asked = config(folder, backend=backend, check_ops=True, check_ops_dir=str(kept), **changes)
    with OfflineEngine(asked) as offline:
        offline.generate([prompts()[1][:6]], greedy(3))
        return checker_of(offline.engine)


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_every_call_agrees_with_the_oracle(folder, tmp_path, backend) -> None:
    checker = _checked(folder, tmp_path, backend)
    assert checker.divergences == []
    assert {op for op, *_ in checker.counts.worst} >= OPERATORS


def test_a_wrong_mixture_is_named(folder, tmp_path) -> None:
    checker = _checked(folder, tmp_path, "crooked", chip_option={"wrong": "expert_mlp"})
    assert {found.divergence.op for found in checker.found.values()} == {"expert_mlp"}
