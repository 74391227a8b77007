"""Capture: a list of launches as one native call, with the same results and the same errors."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_calls import normal

from anychip.chips.cpu.capture import KernelLaunch
from anychip.contract.errors import ChipError
from anychip.ops.placed import place


def prepared(chip, op, inputs, attrs=None):
    """(placed call, its launch)."""
    placed = place(chip, op, inputs, attrs or {})
    return placed, placed.prepare(chip.operators.of(op)[0])


def test_kernels_and_numpy_operators_run_in_their_order(cpu):
    chip, x = cpu.chip, np.abs(normal(1, 4, 32))
    norm, first = prepared(
        chip, "rms_norm", {"x": x, "weight": np.ones(32, np.float32)}, {"eps": 1e-5}
    )
    root, second = prepared(chip, "sqrt", {"x": x})
    soft, third = prepared(chip, "softmax", {"logits": x})
    kinds = [isinstance(launch, KernelLaunch) for launch in (first, second, third)]
    assert kinds == [True, False, True]
    placed = (norm, root, soft)
    for call, launch in zip(placed, (first, second, third), strict=True):
        call.poison()
        launch()
    wanted = [call.outcome() for call in placed]
    for call in placed:
        call.poison()
    replay = chip.capture.capture((first, second, third))
    del first, second, third  # a capture keeps what it needs
    for _ in range(2):
        replay()
        for call, before in zip(placed, wanted, strict=True):
            for name, array in call.outcome().items():
                assert array.tobytes() == before[name].tobytes()
    for call in placed:
        call.close()


def test_a_failure_within_a_list_names_its_operator_and_ends_the_list(cpu):
    chip = cpu.chip
    logits = normal(2, 3, 8)
    soft, first = prepared(chip, "softmax", {"logits": logits})
    table = normal(3, 5, 32)
    bad = np.array([9], np.int32)
    lookup, second = prepared(
        chip, "embedding", {"tokens": bad, "table": table}, {"dtype": "float32"}
    )
    after, third = prepared(chip, "greedy", {"logits": logits})
    after.poison()
    with pytest.raises(ChipError, match="a token is outside of the vocabulary") as caught:
        chip.capture.capture((first, second, third))()
    assert caught.value.operators == ("embedding",)
    assert (soft.outcome()["y"] > 0).all()
    assert (after.outcome()["tokens"] == -1).all()
    for call in (soft, lookup, after):
        call.close()


def test_without_kernels_the_slot_is_empty(chips):
    assert chips(kernels="host").chip.capture is None
