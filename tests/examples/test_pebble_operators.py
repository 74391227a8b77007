"""The example chip's memory, queue and operators, one by one."""

from __future__ import annotations

import ast
import dataclasses

import numpy as np
import pytest

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.discovery import list_chips, load_chip, open_chip
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ContractError, ErrorKind
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import check_device, read_options
from anychip.contract.signature import infer_outputs
from anychip.contract.tensor import Tensor, TensorSpec
from anychip.contract.version import CONTRACT
from anychip.ops.cases import cases
from anychip.ops.check import check_case


@pytest.fixture
def chip(pebble):
    opened = open_chip("pebble", 0, {"memory_mib": "16"})
    yield opened
    opened.close()


def test_pebble_is_four_files_over_the_contract_and_hostops(pebble):
    files = {f.name: f.read_text() for f in (pebble / "anychip_pebble").glob("*.py")}
    assert set(files) == {
        *("__init__.py", "registration.py", "operators.py", "memory.py", "build.py")
    }
    imported = {
        node.module
        for text in files.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
    }
    ours = {name for name in imported if name.startswith("anychip.")}
    assert ours and all(name.startswith(("anychip.contract", "anychip.hostops")) for name in ours)


def test_chip_is_listed_from_its_entry_point(pebble):
    (seen,) = (c for c in list_chips(timeout=60.0, describe=True) if c.name == "pebble")
    assert seen.available, seen.reason
    assert (seen.distribution, seen.contract) == ("anychip-pebble", CONTRACT)
    assert "memory.statistics" in seen.empty_slots


def test_check_device_computes_in_a_child(pebble):
    finding = check_device(load_chip("pebble"), 0, 60.0, read_options(load_chip("pebble"), {}))
    assert finding.verdict.value == "good", finding.text


def rms_norm_spec(rows: int, dtype: DType = DType.FLOAT32) -> CallSpec:
    x, weight = TensorSpec((rows, 8), dtype), TensorSpec((8,), DType.FLOAT32)
    return CallSpec("rms_norm", {"x": x, "weight": weight}, {"y": x}, {"eps": 1e-5})


def test_rms_norm_covers_its_bound_and_declines_beyond(chip):
    (impl,) = chip.operators.of("rms_norm")
    assert [impl.declines(rms_norm_spec(rows)) for rows in (0, 1, 1023, 1024)] == [None] * 4
    assert impl.declines(rms_norm_spec(1025)) == "1,025 rows, the kernel takes 1,024"
    assert "X=bfloat16" in impl.declines(rms_norm_spec(1, DType.BFLOAT16))


def test_every_primitive_is_there_and_an_unknown_name_is_refused(pebble):
    table = open_chip("pebble", 0, {"native": "no", "without": "rsqrt,exp"}).operators
    assert table.of("matmul") and not table.of("rsqrt") and not table.of("rms_norm")
    with pytest.raises(ContractError, match="no operator is named 'rsqr'"):
        open_chip("pebble", 0, {"without": "rsqr"})


def upload(chip, array: np.ndarray) -> Tensor:
    """The array on the chip with its strides, whatever lies between its rows too."""
    strides = tuple(s // array.itemsize for s in array.strides)
    elements = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True)) + 1
    flat = np.lib.stride_tricks.as_strided(array, (elements if array.size else 0,), (4,))
    whole = Tensor(flat.shape, DType.FLOAT32, buffer=chip.memory.allocate(flat.nbytes))
    chip.memory.copy_in(whole, np.ascontiguousarray(flat).data)
    return whole.view(array.shape, strides)


@pytest.mark.parametrize(
    "case",
    [*cases("rms_norm"), *cases("silu_and_mul")],
    ids=lambda case: f"{case.op}-{case.name}",
)
def test_kernel_agrees_with_the_oracle(chip, case):
    (impl,) = chip.operators.of(case.op)
    inputs = {name: upload(chip, array) for name, array in case.inputs.items()}
    specs = {name: tensor.spec for name, tensor in inputs.items()}
    (shape,) = (s.shape for s in infer_outputs(CATALOGUE[case.op], specs, case.attrs))
    y = upload(chip, np.full(shape, np.nan, np.float32))
    spec = CallSpec(case.op, specs, {"y": y.spec}, case.attrs)
    assert impl.declines(spec) is None
    impl.prepare(Call(spec, inputs, {"y": y}))()
    found = np.zeros(y.shape, np.float32)
    chip.memory.copy_out(y, found.data)
    verdict = check_case(case, {"y": found})
    assert verdict.ok, verdict.text


def test_kernel_status_comes_out_at_the_next_wait_with_its_code_and_fact(chip):
    spec = rms_norm_spec(1025)
    x, weight = upload(chip, np.ones((1025, 8), "f4")), upload(chip, np.ones(8, "f4"))
    y = upload(chip, np.zeros((1025, 8), "f4"))
    (impl,) = chip.operators.of("rms_norm")
    impl.prepare(Call(spec, {"x": x, "weight": weight}, {"y": y}))()
    with pytest.raises(ChipError, match=r"out of bounds \(code 1\); queued") as told:
        chip.queue.synchronize(1.0)
    assert told.value.fact == chip.map_error(1) and told.value.fact.kind is ErrorKind.INVALID


def test_memory_is_counted_and_refused_by_type(chip):
    before = chip.memory.info()
    buffer = chip.memory.allocate(1 << 20)
    assert chip.memory.info().used == before.used + (1 << 20)
    with pytest.raises(ChipError, match=r"asked for 16,777,216 bytes, 15,728,640 free") as full:
        chip.memory.allocate(16 << 20)
    assert full.value.fact.kind is ErrorKind.OUT_OF_MEMORY and not full.value.fatal
    chip.memory.free(buffer)
    assert chip.memory.info() == before
    with pytest.raises(ChipError, match="freed twice"):
        chip.memory.free(buffer)
    stranger = open_chip("pebble", 0, {"native": "no"}).memory.allocate(8)
    with pytest.raises(ChipError, match="not of this device"):
        chip.memory.free(stranger)


def test_traffic_counts_what_crossed(chip):
    tensor = upload(chip, np.zeros(4, np.float32))
    before = chip.memory.traffic()
    chip.memory.copy_in(tensor, memoryview(bytes(16)))
    chip.memory.copy_out(tensor, memoryview(bytearray(16)))
    after = chip.memory.traffic()
    assert (after.bytes_in - before.bytes_in, after.bytes_out - before.bytes_out) == (16, 16)


def test_copies_of_another_length_or_layout_and_freed_buffers_are_refused(chip):
    tensor = upload(chip, np.zeros((4, 4), np.float32))
    with pytest.raises(ChipError, match="60 bytes on the host, 64 on the device"):
        chip.memory.copy_in(tensor, memoryview(bytes(60)))
    with pytest.raises(ChipError, match="read-only"):
        chip.memory.copy_out(tensor, memoryview(bytes(64)))
    with pytest.raises(ChipError, match="must be contiguous"):
        chip.memory.copy_in(tensor.view((4, 4), (1, 4)), memoryview(bytes(64)))
    chip.memory.free(tensor.buffer)
    with pytest.raises(ChipError, match="was freed"):
        chip.memory.copy_out(tensor, memoryview(bytearray(64)))


def test_a_late_error_comes_out_at_the_next_wait_and_names_the_operators(chip):
    table, y = upload(chip, np.zeros((4, 2), np.float32)), upload(chip, np.zeros((1, 2), "f4"))
    index = dataclasses.replace(upload(chip, np.zeros(1, "f4")), dtype=DType.INT32)
    chip.memory.copy_in(index, np.array([9], np.int32).data)
    spec = CallSpec("gather_rows", {"table": table.spec, "index": index.spec}, {"y": y.spec}, {})
    launch = chip.operators.of("gather_rows")[0].prepare(
        Call(spec, {"table": table, "index": index}, {"y": y})
    )
    launch()
    with pytest.raises(ChipError, match=r"index 9 .*queued since the last wait: gather_rows") as e:
        chip.queue.synchronize(1.0)
    assert e.value.fatal and chip.map_error(e.value.code).kind is ErrorKind.KERNEL
    with pytest.raises(ChipError, match="index 9"):
        chip.memory.copy_out(y, memoryview(bytearray(8)))
    assert chip.map_error(77).fatal and "77" in chip.map_error(77).text
