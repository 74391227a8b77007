"""The late queue, faults on demand, and the checks around each launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import strict_calls

from anychip.chips.fake.registration import FakeChip
from anychip.contract.build import Verdict
from anychip.contract.discovery import open_chip
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.operators import Call
from anychip.contract.registration import chip_slots, read_options
from anychip.contract.tensor import Tensor

ONES = np.ones((2, 4), np.float32)


def launched(chip, op="neg", **arrays):
    impl, call = strict_calls.prepared(chip, op, arrays or {"x": ONES}, {})
    launch = impl.prepare(call)
    launch()
    return call, launch


def raised(wait, kind):
    with pytest.raises(ChipError) as caught:
        wait()
    assert caught.value.fact.kind is kind, str(caught.value)
    return caught.value


def synchronize(chip, timeout=5.0):
    return lambda: chip.queue.synchronize(timeout)


def test_nothing_runs_before_a_wait():
    chip = strict_calls.opened()
    call, _ = launched(chip)
    unread = chip._store.array(call.outputs["y"]).copy()
    chip.queue.synchronize(5.0)
    assert np.isnan(unread).all()
    assert (chip._store.array(call.outputs["y"]) == -1).all()


def test_a_long_queue_starts_by_itself():
    chip = strict_calls.opened()
    call, launch = launched(chip)
    for _ in range(100):
        launch()
    assert (chip._store.array(call.outputs["y"]) == -1).all()


def test_index_values_are_read_when_the_launch_runs():
    chip = strict_calls.opened()
    table, index = np.arange(8, dtype=np.float32).reshape(4, 2), np.zeros(1, np.int32)
    call, launch = launched(chip, "gather_rows", table=table, index=index)
    chip.memory.copy_in(call.inputs["index"], np.array([3], np.int32).data)
    launch()
    assert strict_calls.download(chip, call.outputs["y"]).tolist() == [[6.0, 7.0]]


def test_outputs_are_poisoned_before_each_launch():
    chip = strict_calls.opened()
    impl, call = strict_calls.prepared(chip, "neg", {"x": ONES}, {})
    seen = []
    base = chip._store.array(call.outputs["y"])
    base[...] = 5
    spying = replace(impl, prepare=lambda c: lambda: seen.append(base.copy()))
    from anychip.chips.fake.operators import _strict

    _strict(spying, chip._store, chip.queue._stream).prepare(call)()
    chip.queue.synchronize(5.0)
    assert np.isnan(seen[0]).all()


def test_write_past_a_buffer_is_named_with_its_operator():
    chip = strict_calls.opened()
    impl, call = strict_calls.prepared(chip, "neg", {"x": ONES}, {})
    block = chip._store._blocks[call.outputs["y"].buffer.handle]

    def overrun():
        block.whole[-1] = 0

    from anychip.chips.fake.operators import _strict

    bad = _strict(replace(impl, prepare=lambda c: overrun), chip._store, chip.queue._stream)
    bad.prepare(call)()
    error = raised(synchronize(chip), ErrorKind.KERNEL)
    assert "by 'neg'" in str(error) and error.fatal


@pytest.mark.parametrize("end", ["free", "synchronize"])
def test_damaged_guards_are_noticed_later_too(end):
    chip = strict_calls.opened()
    buffer = chip.memory.allocate(64)
    chip._store._blocks[buffer.handle].whole[0] = 0
    if end == "free":
        chip.memory.free(buffer)
    assert "written" in str(raised(synchronize(chip), ErrorKind.KERNEL))


def test_failed_launch_comes_out_at_the_wait_with_the_names_in_doubt():
    chip = strict_calls.opened(fail_launch=2)
    launched(chip, "exp")
    call, _ = launched(chip, "neg")
    launched(chip, "sqrt")
    target = np.zeros((2, 4), np.float32)
    wait = lambda: chip.memory.copy_out(call.outputs["y"], target.data)  # noqa: E731
    error = raised(wait, ErrorKind.KERNEL)
    assert error.operators == ("exp", "neg", "sqrt") and error.fatal
    assert "'neg' failed" in str(error)
    raised(synchronize(chip), ErrorKind.KERNEL)


def test_confirmed_operators_are_not_in_doubt():
    chip = strict_calls.opened(fail_launch=2)
    launched(chip, "exp")
    chip.queue.synchronize(5.0)
    launched(chip, "neg")
    assert raised(synchronize(chip), ErrorKind.KERNEL).operators == ("neg",)


def test_lost_device():
    chip = strict_calls.opened(lose_device_at=1)
    launched(chip)
    error = raised(synchronize(chip), ErrorKind.LOST)
    assert error.fatal and error.code == 4
    launched(chip)
    raised(synchronize(chip), ErrorKind.LOST)


def test_hang_ends_in_a_timeout():
    chip = strict_calls.opened(hang_launch=1, watchdog=0.01)
    call, _ = launched(chip)
    assert raised(synchronize(chip, 0.01), ErrorKind.TIMEOUT).operators == ("neg",)
    raised(lambda: strict_calls.download(chip, call.outputs["y"]), ErrorKind.TIMEOUT)


def test_failed_allocation():
    chip = strict_calls.opened(fail_allocation=2)
    chip.memory.allocate(1)
    raised(lambda: chip.memory.allocate(1), ErrorKind.OUT_OF_MEMORY)
    chip.memory.allocate(1)


def test_index_outside_its_table_is_a_late_kernel_error():
    chip = strict_calls.opened()
    launched(chip, "gather_rows", table=ONES, index=np.array([2], np.int32))
    error = raised(synchronize(chip), ErrorKind.KERNEL)
    assert "index 2 must lie in 0 .. 1" in str(error)


def test_launch_with_a_freed_buffer_is_refused_at_the_call():
    chip = strict_calls.opened()
    call, launch = launched(chip)
    chip.memory.free(call.inputs["x"].buffer)
    raised(launch, ErrorKind.INVALID)


def altered(chip, **changes):
    """A valid call of `neg` with some of its parts replaced."""
    impl, call = strict_calls.prepared(chip, "neg", {"x": ONES}, {})
    parts = {"spec": call.spec, "inputs": call.inputs, "outputs": call.outputs}
    return lambda: impl.prepare(Call(**{**parts, **changes}))


def test_calls_that_break_the_signature_are_refused_when_prepared():
    chip = strict_calls.opened()
    buffer = chip.memory.allocate(256)
    small = Tensor((2, 3), DType.FLOAT32, buffer=buffer)
    gaps = Tensor((2, 4), DType.FLOAT32, (5, 1), buffer=buffer)
    for broken in ({"outputs": {"y": small}}, {"outputs": {"y": gaps}}, {"inputs": {"x": small}}):
        raised(altered(chip, **broken), ErrorKind.INVALID)


def test_output_on_top_of_an_input_is_refused():
    chip = strict_calls.opened()
    whole = Tensor((16,), DType.FLOAT32, buffer=chip.memory.allocate(64))
    x, apart, across = whole.view((2, 4)), whole.view((2, 4), offset=8), whole.view((2, 4), (), 7)
    altered(chip, inputs={"x": x}, outputs={"y": apart})()
    error = raised(altered(chip, inputs={"x": x}, outputs={"y": across}), ErrorKind.INVALID)
    assert "shares memory" in str(error)


def test_rows_layout_is_enforced():
    chip = strict_calls.opened()
    bent = np.zeros((4, 2), np.float32).T
    impl, call = strict_calls.prepared(chip, "argmax", {"x": bent}, {})
    raised(lambda: impl.prepare(call), ErrorKind.INVALID)


def test_opened_by_name_with_its_empty_slots():
    chip = open_chip("fake", 0, {"memory": "64M"})
    assert chip.memory.info().total == 64 << 20
    empty = set(chip_slots(chip))
    assert {"communicator", "capture", "memory.statistics", "build.compile"} <= empty
    assert not {"telemetry", "memory.fill"} & empty
    chip.close()


def test_codes_and_device_check():
    assert FakeChip.map_error(1).kind is ErrorKind.OUT_OF_MEMORY
    assert "4711" in FakeChip.map_error(4711).text
    assert FakeChip.check_device(0, 60.0, read_options(FakeChip, {})).verdict is Verdict.GOOD
    late = FakeChip.check_device(0, 0.001, read_options(FakeChip, {}))
    assert late.verdict is Verdict.BAD and "0.001 s" in late.text
