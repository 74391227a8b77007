"""What is this chip's own; what every chip must do stands in test_conformance.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from anychip.contract.build import Verdict
from anychip.contract.discovery import open_chip
from anychip.contract.errors import ChipError
from anychip.contract.registration import Chip
from anychip.ops.cases import cases
from anychip.ops.cases.case import Case
from anychip.ops.check import check_case
from anychip.ops.placed import place
from anychip_pebble.build import FUNCTIONS
from anychip_pebble.memory import CHIP, Code
from anychip_pebble.operators import MOST_ROWS


@pytest.fixture
def chip() -> Iterator[Chip]:
    opened = open_chip(CHIP, 0, {"memory_mib": "64"})
    yield opened
    opened.close()


def test_kernels_are_built_and_chosen(chip: Chip) -> None:
    assert [finding.verdict for finding in chip.build.check()] == [Verdict.GOOD] * 2
    for op in FUNCTIONS:
        assert [i.id for i in chip.operators.of(op)] == [f"{CHIP}.{op}"]


@pytest.mark.parametrize(
    "case",
    [case for op in FUNCTIONS for case in cases(op)],
    ids=lambda case: f"{case.op}: {case.name}",
)
def test_kernel_agrees_with_the_oracle(chip: Chip, case: Case) -> None:
    (kernel,) = chip.operators.of(case.op)
    with place(chip, case.op, case.inputs, case.attrs) as placed:
        placed.poison()
        placed.prepare(kernel)()
        verdict = check_case(case, placed.outcome())
    assert verdict.ok, verdict.text


def test_size_beyond_the_bound_is_declined_and_is_an_error_with_its_code(chip: Chip) -> None:
    (kernel,) = chip.operators.of("rms_norm")
    inputs = {"x": np.ones((MOST_ROWS + 1, 8), np.float32), "weight": np.ones(8, np.float32)}
    with place(chip, "rms_norm", inputs, {"eps": 1e-5}) as placed:
        assert kernel.declines(placed.call.spec) is not None
        placed.prepare(kernel)()
        with pytest.raises(ChipError, match="queued since the last wait: rms_norm") as told:
            chip.queue.synchronize(1.0)
    assert told.value.code == Code.BAD_SIZE
