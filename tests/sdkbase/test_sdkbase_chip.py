"""The whole of it as a chip: probe, open, operators through a shim, weights, check, close."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from small_device import PAGE, TOTAL, BrokenChip, Parts, SmallChip, StuckChip, folder

from anychip.contract.build import Verdict
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ErrorKind
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import read_options
from anychip.contract.tensor import Tensor, TensorSpec
from anychip.contract.weights import HostWeight, WeightUse
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.sdk import found_sdk


@pytest.fixture
def options():
    return read_options(SmallChip, {"sdk_root": str(folder())}, {})


@pytest.fixture
def chip(options):
    opened = SmallChip.open(0, options)
    yield opened
    opened.close()
    opened.close()
    assert Parts().measure().free == TOTAL


def vector(chip, values):
    tensor = Tensor((len(values),), DType.FLOAT32, buffer=chip.memory.allocate(4 * len(values)))
    chip.memory.copy_in(tensor, np.array(values, np.float32).data)
    return tensor


def values(chip, tensor):
    host = np.zeros(tensor.size, np.float32)
    chip.memory.copy_out(tensor, host.data)
    return host.tolist()


def test_a_probe_asks_in_a_child_and_says_which_cards(options):
    probe = SmallChip.probe(options)
    assert [(d.index, d.name, d.memory, d.uid) for d in probe.devices] == [
        (0, "Small, card 0", TOTAL, "place 0"),
        (1, "Small, card 1", TOTAL, "place 1"),
    ]
    assert probe.versions == {"driver": "1"}
    assert [d.uid for d in SmallChip.probe(options | {"visible": "1"}).devices] == ["place 1"]
    assert "there is no card '5'" in SmallChip.probe(options | {"visible": "5"}).reason


def test_why_there_is_no_card(options, tmp_path):
    nothing = SmallChip.probe(options | {"sdk_root": str(tmp_path)})
    assert not nothing.devices
    assert f"sdk_root={tmp_path} holds no library of the SDK (set" in nothing.reason
    nothing = SmallChip.probe(options | {"sdk_root": ""})
    assert nothing.reason.startswith("no libdev.so (no option, no variable, ")
    assert ": write one; nothing else" in nothing.reason
    (tmp_path / "lib").mkdir()
    code = "void f(void) __attribute__((constructor)); void f(void) { __builtin_trap(); }"
    (tmp_path / "bad.c").write_text(code)
    library = str(tmp_path / "lib" / "libdev.so")
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "bad.c"), "-o", library], check=True)
    assert "killed by SIG" in SmallChip.probe(options | {"sdk_root": str(tmp_path)}).reason
    (tmp_path / "bad.c").write_text("int other;")
    subprocess.run(["gcc", "-shared", "-fPIC", str(tmp_path / "bad.c"), "-o", library], check=True)
    told = SmallChip.probe(options | {"sdk_root": str(tmp_path)}).reason
    assert "undefined symbol: dev_use (driver 1)" in told and "nothing else" in told


def test_an_operator_goes_through_the_shim_onto_the_queue(chip):
    a, b, y = vector(chip, [1, 2, 3]), vector(chip, [10, 20, 30]), vector(chip, [0, 0, 0])
    spec = CallSpec("add", {"a": a.spec, "b": b.spec}, {"y": y.spec}, {})
    (add,) = chip.operators.of("add")
    assert (add.id, add.call, add.unproved) == ("small.add", "dev_add", False)
    assert add.declines(spec) is None and add.workspace(spec) == 12
    launch = add.prepare(Call(spec, {"a": a, "b": b}, {"y": y}))
    launch()
    assert values(chip, y) == [11, 22, 33]
    chip.memory.copy_in(a, np.array([5, 5, 5], np.float32).data)
    launch()
    assert values(chip, y) == [15, 25, 35]


def test_what_is_queued_ends_before_the_operators_context_goes(options):
    opened = SmallChip.open(0, options)
    tensor = vector(opened, [1, 2])
    opened.memory.copy(tensor.view((1,)), tensor.view((1,), offset=1))
    opened.close()
    assert Parts().measure().free == TOTAL


def test_a_status_names_the_library_the_vendor_call_and_the_operator(chip):
    x, y = vector(chip, [1]), vector(chip, [0])
    spec = CallSpec("silu", {"x": x.spec}, {"y": y.spec}, {})
    guesses = chip.operators.of("silu")
    assert [g.id.rpartition(".")[2] for g in guesses] == ["float32", "float16", "bfloat16"]
    assert all(g.unproved and g.assumed == "its sign" for g in guesses)
    silu = guesses[0]
    assert silu.declines(spec) is None and guesses[1].declines(spec) is not None
    with pytest.raises(ChipError, match=r"silu: dev_silu: OPS 3 \(BAD\)") as caught:
        silu.prepare(Call(spec, {"x": x}, {"y": y}))()
    assert caught.value.operators == ("silu",) and caught.value.code == 10_003
    whole = Tensor((1,), DType.INT32, buffer=x.buffer)
    spec = CallSpec("add", {"a": whole.spec, "b": whole.spec}, {"y": whole.spec}, {})
    (add,) = chip.operators.of("add")
    with pytest.raises(ChipError, match="add: a dtype that it does not cover"):
        add.prepare(Call(spec, {"a": whole, "b": whole}, {"y": whole}))()
    half = TensorSpec((1,), DType.FLOAT16)
    spec = CallSpec("add", {"a": half, "b": half}, {"y": half}, {})
    assert "no dtype row" in add.declines(spec)


def test_what_the_shim_lacks_or_cannot_hold_is_declined(chip):
    assert chip.operators.of("exp") == ()
    wide = TensorSpec((1,) * 7, DType.FLOAT32)
    spec = CallSpec("add", {"a": wide, "b": wide}, {"y": wide}, {})
    assert chip.operators.of("add")[0].declines(spec) == "7 dimensions, it takes 6"


def test_weights_are_stacked_and_two_types_become_float32(chip):
    first = np.arange(6, dtype=np.float32).reshape(2, 3)
    second = np.full((1, 3), 0.5, np.float16)
    parts = [HostWeight(a.dtype.name, a.shape, memoryview(a).cast("B")) for a in (first, second)]
    weight = chip.weights.prepare(tuple(parts), frozenset({WeightUse.LINEAR}))
    assert weight.spec.format == "float32" and weight.spec.shape == (3, 3)
    assert values(chip, weight.dense) == [0, 1, 2, 3, 4, 5, 0.5, 0.5, 0.5]
    chip.weights.release(weight)
    short = HostWeight("float32", (4, 3), parts[0].data)
    with pytest.raises(ChipError, match="24 bytes, not 48"):
        chip.weights.prepare((short,), frozenset({WeightUse.LINEAR}))


def test_a_copy_that_fails_keeps_no_weight(chip, monkeypatch):
    def failing(target, source):
        raise MemoryError("no room on the host")

    part = HostWeight("float32", (2, 3), memoryview(bytes(24)))
    with monkeypatch.context() as patched:
        patched.setattr(chip.memory, "copy_in", failing)
        with pytest.raises(MemoryError, match="on the host"):
            chip.weights.prepare((part,), frozenset({WeightUse.LINEAR}))
    assert chip.memory.statistics().used == 0


def test_a_device_is_checked_in_a_child_that_may_hang(options):
    good = SmallChip.check_device(0, 60.0, options)
    assert (good.verdict, good.name) == (Verdict.GOOD, "small device 0")
    stuck = StuckChip.check_device(0, 5.0, options)
    assert stuck.verdict is Verdict.BAD and "no answer within 5 s" in stuck.text
    assert stuck.step == "compile it again"
    broken = BrokenChip.check_device(0, 60.0, options)
    assert broken.verdict is Verdict.BAD and "a part is missing" in broken.text
    assert broken.step == "anychip build small"  # no card is accused of what the build lacks


def test_a_chip_that_opens_by_half_gives_everything_back(options):
    with pytest.raises(ChipError, match="a part is missing") as caught:
        BrokenChip.open(0, options)
    assert caught.value.fact.kind is ErrorKind.VERSION
    assert Parts().measure().free == TOTAL > PAGE


def test_what_is_named_is_never_replaced_by_a_usual_place(tmp_path):
    form = SdkForm(str(folder()), ())
    assert found_sdk({}, form, ["dev"]).where == f"usual place {folder()}"
    named = found_sdk({"sdk_root": str(tmp_path)}, form, ["dev"])
    assert not named.libraries and not named.simulated
    (folder() / "SIMULATED.txt").touch()
    assert found_sdk({}, form, ["dev"]).simulated
    (folder() / "SIMULATED.txt").unlink()
