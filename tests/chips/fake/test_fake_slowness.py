"""What makes the fake chip slow on demand, so that tools can be seen to find it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import strict_calls

from anychip.contract.errors import ChipError, ContractError
from dropped_pages import major_faults, need_dropped_pages


def holders():
    return [thread for thread in threading.enumerate() if thread.name == "chip-lock"]


def test_blocks_are_powers_of_the_step_and_told():
    chip = strict_calls.opened(memory="1M", block_step=4)
    chip.memory.allocate(300)
    info, said = chip.memory.info(), chip.memory.statistics()
    assert (info.used, said.used, said.asked, said.cached) == (1024, 1024, 300, 0)
    assert said.fragmentation == pytest.approx(1 - 300 / 1024)
    assert info.largest == 4**9 < info.free
    chip.memory.free(chip.memory.allocate(info.largest))
    with pytest.raises(ChipError, match="out of memory"):
        chip.memory.allocate(info.largest + 1)
    assert chip.memory.statistics() == said
    chip.close()


def test_a_lock_that_launches_wait_for():
    chip = strict_calls.opened(lock_ms=2)
    assert len(holders()) == 1
    strict_calls.upload(chip, np.zeros(4, np.float32))
    chip.close()
    assert holders() == []


def test_waits_read_pages_from_the_disk():
    need_dropped_pages()
    chip, before = strict_calls.opened(disk_pages=32), major_faults()
    chip.queue.synchronize(None)
    assert major_faults() - before >= 16
    chip.close()


@pytest.mark.parametrize("given", [{"lock_ms": -1}, {"block_step": 1}, {"disk_pages": -2}])
def test_values_that_make_no_sense_are_refused(given):
    (name,) = given
    with pytest.raises(ContractError, match=f"option {name}={given[name]}"):
        strict_calls.opened(**given)
