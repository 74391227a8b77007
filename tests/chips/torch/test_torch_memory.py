"""Memory and weights: accounted for, strict about what they are given."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ContractError, ErrorKind
from anychip.contract.host import host_facts
from anychip.contract.layer import empty_slots
from anychip.contract.tensor import Buffer, Tensor
from anychip.contract.weights import HostWeight, WeightUse
from anychip.torchbase import memory as torch_memory


def tensor(memory, nbytes):
    return Tensor((nbytes,), DType.UINT8, buffer=memory.allocate(nbytes))


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 4097])
@pytest.mark.parametrize("readonly", [True, False])
def test_aligned_and_there_and_back(chip, monkeypatch, nbytes, readonly):
    monkeypatch.setattr(torch_memory, "STAGE", 1000)
    x = tensor(chip.memory, nbytes)
    assert x.buffer.handle.data_ptr() % chip.memory.alignment == 0
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes).astype(np.uint8)
    wanted = data.copy()
    data.flags.writeable = not readonly
    chip.memory.copy_in(x, data.data)
    data.flags.writeable = True
    data[:] = 0
    found = np.zeros(nbytes, np.uint8)
    chip.memory.copy_out(x, found.data)
    np.testing.assert_array_equal(found, wanted)


def test_copies_are_counted_by_direction(chip):
    x, before = tensor(chip.memory, 4096), chip.memory.traffic()
    chip.memory.copy_in(x, memoryview(bytes(4096)))
    chip.memory.copy_out(x, memoryview(bytearray(4096)))
    chip.memory.copy_out(x, memoryview(bytearray(4096)))
    said = chip.memory.traffic()
    assert (said.bytes_in - before.bytes_in, said.bytes_out - before.bytes_out) == (4096, 8192)
    assert said.seconds_in > before.seconds_in and said.seconds_out > before.seconds_out


def test_the_host_has_no_pool(chip):
    assert "statistics" in empty_slots(type(chip.memory))


def test_both_sides_of_a_copy_are_as_long(chip):
    x = tensor(chip.memory, 8)
    for copy in (chip.memory.copy_in, chip.memory.copy_out):
        with pytest.raises(ChipError, match="7 bytes on the host, 8 on the device") as caught:
            copy(x, memoryview(bytearray(7)))
        assert caught.value.fact.kind is ErrorKind.INVALID


def test_strided_sides_and_read_only_targets_are_refused(chip):
    x = Tensor((2, 2), DType.UINT8, (3, 1), buffer=chip.memory.allocate(8))
    with pytest.raises(ChipError, match="contiguous"):
        chip.memory.copy_in(x, memoryview(bytearray(4)))
    with pytest.raises(ChipError, match="contiguous"):
        chip.memory.copy_in(tensor(chip.memory, 4), memoryview(bytearray(8))[::2])
    with pytest.raises(ChipError, match="read-only"):
        chip.memory.copy_out(tensor(chip.memory, 4), memoryview(bytes(4)))


def test_freed_twice_or_never_ours(chip):
    buffer = chip.memory.allocate(16)
    chip.memory.free(buffer)
    for wrong in (buffer, Buffer(buffer.handle, 16)):
        with pytest.raises(ChipError, match="freed twice"):
            chip.memory.free(wrong)
    with pytest.raises(ChipError, match="freed"):
        chip.memory.copy_in(Tensor((16,), DType.UINT8, buffer=buffer), memoryview(bytearray(16)))
    with pytest.raises(ChipError, match="-1 bytes"):
        chip.memory.allocate(-1)


def test_limit_is_kept_and_given_back(opened):
    memory = opened(memory="1M").memory
    assert memory.info().total == 1 << 20
    buffer = memory.allocate(1 << 19)
    assert (memory.info().used, memory.info().free) == (1 << 19, 1 << 19)
    with pytest.raises(ChipError, match="asked for 600,000 bytes, 524,288 free") as caught:
        memory.allocate(600_000)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY
    memory.free(buffer)
    assert memory.info().free == 1 << 20
    assert memory.info().source == "chip option memory"


def test_more_than_the_host_has_is_typed(chip):
    with pytest.raises(ChipError) as caught:
        chip.memory.allocate(host_facts().total * 2)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY


def test_torch_out_of_memory_is_typed(chip, monkeypatch):
    def full(*args, **options):
        raise torch_memory.torch.OutOfMemoryError("none left")

    monkeypatch.setattr(torch_memory.torch, "empty", full)
    with pytest.raises(ChipError) as caught:
        chip.memory.allocate(64)
    assert caught.value.fact.kind is ErrorKind.OUT_OF_MEMORY


def test_fill_sets_every_byte(chip):
    x = tensor(chip.memory, 70)
    chip.memory.fill(x, 0xA5)
    found = np.zeros(70, np.uint8)
    chip.memory.copy_out(x, found.data)
    assert set(found.tolist()) == {0xA5}
    with pytest.raises(ChipError, match="256"):
        chip.memory.fill(x, 256)


def weight_of(chip, *arrays):
    parts = tuple(
        HostWeight(a.dtype.name, a.shape, a.reshape(-1).view(np.uint8).data) for a in arrays
    )
    return chip.weights.prepare(parts, frozenset({WeightUse.LINEAR}))


def read(chip, weight, dtype):
    found = np.zeros(weight.spec.shape, dtype)
    chip.memory.copy_out(weight.dense, found.reshape(-1).view(np.uint8).data)
    return found


def test_parts_are_stacked_as_they_come(chip):
    one = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    weight = weight_of(chip, one, one + one)
    assert (weight.spec.format, weight.spec.shape, weight.spec.nbytes) == ("bfloat16", (4, 3), 24)
    np.testing.assert_array_equal(
        read(chip, weight, ml_dtypes.bfloat16), np.concatenate([one, one + one])
    )


def test_parts_that_differ_become_float32_and_an_option_decides(chip, opened):
    one, two = np.ones((2, 3), np.float32), np.full((1, 3), 2, np.float16)
    mixed = weight_of(chip, one, two)
    assert mixed.spec.format == "float32"
    np.testing.assert_array_equal(read(chip, mixed, np.float32), np.concatenate([one, two]))
    kept = opened(weights="float16")
    narrow = weight_of(kept, one)
    assert narrow.spec.nbytes == 12
    np.testing.assert_array_equal(read(kept, narrow, np.float16), one)
    kept.weights.release(narrow)
    assert kept.memory._used == 0


def test_weights_that_do_not_fit_are_refused(chip):
    short = HostWeight("float32", (2, 3), memoryview(bytearray(20)))
    with pytest.raises(ChipError, match="20 bytes, not 24"):
        chip.weights.prepare((short,), frozenset({WeightUse.LINEAR}))
    with pytest.raises(ChipError, match="q8_0"):
        chip.weights.plan(("q8_0",), ((2, 32),), frozenset({WeightUse.LINEAR}))
    with pytest.raises(ChipError, match="do not stack"):
        chip.weights.plan(("float32",) * 2, ((2, 3), (2, 4)), frozenset({WeightUse.LINEAR}))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"memory": "lots"}, "option memory=lots"),
        ({"weights": "int4"}, "option weights=int4"),
        ({"device": "../x"}, "option device=../x"),
        ({"device": "nonsense"}, "no device 'nonsense'"),
        ({"device": "meta:99"}, "no device 'meta:99'|memory"),
        ({"devise": "cuda"}, "no option 'devise'"),
    ],
)
def test_options_that_make_no_sense_are_refused(opened, option, words):
    with pytest.raises((ContractError, ChipError), match=words):
        opened(**option).memory.info()
