"""One opened chip an instruction set; kernels come from the user's own cache, built once."""

from __future__ import annotations

from functools import partial

import pytest
from cpu_calls import LEVELS, CpuCalls

from anychip.chips.cpu.build_isa import EMULATED


@pytest.fixture(scope="session")
def chips():
    """Opens a chip with options, once for each set of them."""
    opened: dict[tuple, CpuCalls] = {}

    def get(**options):
        key = tuple(sorted(options.items()))
        if key not in opened:
            opened[key] = CpuCalls(options)
        return opened[key]

    yield get
    for calls in opened.values():
        calls.chip.close()


@pytest.fixture(scope="session")
def cpu(chips):
    return chips()


@pytest.fixture(params=LEVELS, scope="session")
def each(request, chips):
    """The chip held to each instruction set that this processor can run."""
    return chips(isa=request.param)


@pytest.fixture(params=["auto", *(isa for isa in LEVELS if isa == EMULATED)], scope="session")
def best(request, chips):
    """Opens a chip with options at the best instruction set; then over emulated tiles."""
    return partial(chips, isa=request.param)
