"""The strict memory: what a careless core would do is refused, named or poisoned."""

from __future__ import annotations

import numpy as np
import pytest
import strict_calls

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ContractError, ErrorKind
from anychip.contract.memory import Traffic
from anychip.contract.tensor import Buffer, Tensor
from anychip.contract.weights import HostWeight, WeightUse

LINEAR = frozenset({WeightUse.LINEAR})


@pytest.fixture
def chip():
    opened = strict_calls.opened(memory="1M")
    yield opened
    opened.close()


def vector(chip, size=4):
    return Tensor((size,), DType.FLOAT32, buffer=chip.memory.allocate(4 * size))


def refused(kind=ErrorKind.INVALID):
    return pytest.raises(ChipError, match=kind.value)


def test_round_trip(chip):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(strict_calls.download(chip, strict_calls.upload(chip, x)), x)


def test_handle_tells_nothing(chip):
    buffer = chip.memory.allocate(64)
    assert type(buffer.handle) is int
    assert buffer.handle < 100  # a number, not an address


def test_fresh_and_freed_memory_is_not_a_number(chip):
    tensor = vector(chip)
    assert np.isnan(strict_calls.download(chip, tensor)).all()


def test_poison_from_a_seed_looks_like_numbers_and_repeats():
    first, again, other = (
        strict_calls.download(chip, vector(chip, 64))
        for chip in (strict_calls.opened(poison_seed=seed) for seed in (3, 3, 4))
    )
    assert np.array_equal(first, again, equal_nan=True)
    assert not np.array_equal(first, other, equal_nan=True)
    assert not np.isnan(first).all()


def test_copy_in_source_may_be_reused_at_once(chip):
    tensor, source = vector(chip), np.ones(4, np.float32)
    chip.memory.copy_in(tensor, source.data)
    source[:] = 7
    assert (strict_calls.download(chip, tensor) == 1).all()


@pytest.mark.parametrize("size", [3, 5])
def test_other_lengths_are_refused(chip, size):
    tensor, host = vector(chip), np.zeros(size, np.float32)
    with refused():
        chip.memory.copy_in(tensor, host.data)
    with refused():
        chip.memory.copy_out(tensor, host.data)


def test_gaps_are_refused(chip):
    wide = Tensor((2, 2), DType.FLOAT32, (3, 1), buffer=chip.memory.allocate(64))
    host = np.zeros((2, 2), np.float32)
    with refused():
        chip.memory.copy_in(wide, host.data)
    with refused():
        chip.memory.copy_in(wide.view((2, 2)), np.zeros((2, 4), np.float32)[:, ::2].data)


def test_read_only_target_is_refused(chip):
    with refused():
        chip.memory.copy_out(vector(chip), memoryview(bytes(16)))


def test_use_after_free(chip):
    tensor = vector(chip)
    chip.memory.free(tensor.buffer)
    with refused():
        strict_calls.download(chip, tensor)
    with refused():
        chip.memory.copy_in(tensor, np.zeros(4, np.float32).data)


def test_double_free_and_foreign_buffers(chip):
    buffer = chip.memory.allocate(16)
    forged = Buffer(buffer.handle, 1 << 20)
    for stranger in (forged, Buffer(None, 16), strict_calls.opened().memory.allocate(16)):
        with refused():
            chip.memory.free(stranger)
    chip.memory.free(buffer)
    with refused():
        chip.memory.free(buffer)


def test_out_of_memory_says_both_sizes_and_free_makes_room(chip):
    first = chip.memory.allocate(1 << 20)
    with pytest.raises(ChipError, match="1,000 bytes, 0 free") as caught:
        chip.memory.allocate(1000)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY and not caught.value.fatal
    chip.memory.free(first)
    assert chip.memory.allocate(1000).nbytes == 1000


def test_empty_buffer_is_valid(chip):
    empty = Tensor((0, 4), DType.FLOAT32, buffer=chip.memory.allocate(0))
    chip.memory.copy_in(empty, memoryview(b""))
    assert strict_calls.download(chip, empty).shape == (0, 4)
    chip.memory.free(empty.buffer)


def test_negative_size_is_refused(chip):
    with refused():
        chip.memory.allocate(-1)


def test_info_and_telemetry_tell_the_same_truth(chip):
    chip.memory.allocate(1000)
    info = chip.memory.info()
    assert info == chip.telemetry.read().memory
    assert info.total == 1 << 20 and info.used == 1024
    assert info.free == info.largest == info.total - info.used
    assert info.source


def test_traffic_counts_copies_and_nothing_else(chip):
    tensor, host = vector(chip), np.zeros(4, np.float32)
    chip.memory.copy_in(tensor, host.data)
    chip.memory.fill(tensor, 7)
    chip.memory.copy_out(tensor.view((3,)), host[:3].data)
    with refused():
        chip.memory.copy_in(tensor, host[:3].data)
    said = chip.memory.traffic()
    assert (said.bytes_in, said.bytes_out) == (16, 12)
    assert said.seconds_in > 0 and said.seconds_out > 0


def test_a_copy_that_waits_its_turn_has_taken_no_time_yet(chip):
    x = vector(chip)
    chip.memory.copy_in(x, memoryview(bytes(16)))
    assert chip.memory.traffic() == Traffic(bytes_in=16, bytes_out=0)
    chip.queue.synchronize(None)
    assert chip.memory.traffic().seconds_in > 0


def test_fill(chip):
    tensor = vector(chip)
    chip.memory.fill(tensor, 0)
    assert (strict_calls.download(chip, tensor) == 0).all()
    with refused():
        chip.memory.fill(tensor, 256)


def test_closed_chip_refuses_everything(chip):
    tensor = vector(chip)
    chip.close()
    chip.close()
    with refused():
        chip.memory.allocate(1)
    with refused():
        strict_calls.download(chip, tensor)


def test_free_follows_queued_work(chip):
    x = strict_calls.upload(chip, np.ones(4, np.float32))
    impl, call = strict_calls.prepared(chip, "neg", {"x": np.ones(4, np.float32)}, {})
    impl.prepare(call)()
    chip.memory.free(call.inputs["x"].buffer)
    chip.memory.free(x.buffer)
    assert (strict_calls.download(chip, call.outputs["y"]) == -1).all()


def test_weights_stack_and_are_planned_exactly(chip):
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal((n, 8)).astype(np.float32) for n in (3, 5)]
    hosts = tuple(HostWeight("float32", p.shape, p.data) for p in parts)
    plan = chip.weights.plan(("float32",) * 2, ((3, 8), (5, 8)), LINEAR)
    before = chip.memory.info().used
    weight = chip.weights.prepare(hosts, LINEAR)
    assert weight.spec == plan and plan.nbytes == chip.memory.info().used - before
    assert np.array_equal(strict_calls.download(chip, weight.dense), np.concatenate(parts))
    chip.weights.release(weight)
    assert chip.memory.info().used == before


def test_weight_parts_that_do_not_fit_are_refused(chip):
    with refused():
        chip.weights.plan(("q8_0",), ((4, 32),), LINEAR)
    with refused():
        chip.weights.plan(("float32",) * 2, ((4, 32), (4, 16)), LINEAR)
    with refused():
        chip.weights.prepare((HostWeight("float32", (4, 4), memoryview(bytes(60))),), LINEAR)


@pytest.mark.parametrize("size", ["", "0", "2T", "-1", "1.5G"])
def test_senseless_memory_size(size):
    with pytest.raises(ContractError, match="memory="):
        strict_calls.opened(memory=size)


def test_unknown_operator_left_out():
    with pytest.raises(ContractError, match="'liner'"):
        strict_calls.opened(without="liner")
