"""Registration, absence of torch, and what a vendor with a plugin writes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from granite import GraniteChip

from anychip.contract.build import Verdict
from anychip.contract.discovery import list_chips, load_chip
from anychip.contract.errors import ChipError, ContractError, ErrorKind
from anychip.contract.registration import check_device, chip_slots, read_options
from anychip.torchbase.device import DeviceTimeout
from anychip.torchbase.queue import Stream
from chips.fake.strict_calls import run


def listing():
    return next(c for c in list_chips(timeout=60, describe=True) if c.name == "torch")


def test_listed_with_its_version_and_options():
    found = listing()
    assert found.available, found.reason
    assert "torch" in found.versions
    assert any(o.startswith("device (str, default cpu)") for o in found.options)
    assert found.capabilities["activation_dtypes"].startswith("float32")


def test_without_torch_it_is_listed_with_the_way_out(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = listing()
    assert not found.available
    assert "pip install 'anychip[torch]'" in found.reason
    assert found.versions == {}


def test_loading_and_probing_import_no_torch():
    code = (
        "import sys; from anychip.contract.discovery import load_chip, list_chips; list_chips();"
        "assert load_chip('torch').probe({}).devices; print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "False", ended.stdout + ended.stderr


def test_check_device_computes_in_a_child():
    found = check_device(load_chip("torch"), 0, 60.0, read_options(load_chip("torch"), {}))
    assert found.verdict is Verdict.GOOD, found.text


def test_empty_slots_and_findings_can_be_seen(chip):
    assert {"communicator", "capture", "queue.record"} <= set(chip_slots(chip))
    assert [f.verdict for f in chip.build.check()] == [Verdict.GOOD]
    assert load_chip("torch").map_error(7).text == "unknown code 7"
    chip.queue.synchronize(1.0)


@pytest.mark.parametrize(
    ("error", "kind", "fatal"),
    [
        (RuntimeError("device-side assert"), ErrorKind.KERNEL, True),
        (DeviceTimeout("no end"), ErrorKind.TIMEOUT, True),
    ],
)
def test_late_errors_name_what_was_queued(chip, error, kind, fatal):
    stream = Stream(chip.queue._stream.device)
    stream.launch("softmax", lambda: None)

    def late():
        raise error

    with pytest.raises(ChipError, match="softmax") as caught:
        stream.waiting(late)
    assert (caught.value.fact.kind, caught.value.fatal) == (kind, fatal)
    stream.wait(None)
    with pytest.raises(ChipError) as caught:
        stream.waiting(late)
    assert caught.value.operators == ()


def test_a_plugin_writes_a_name_and_what_it_does_better():
    assert len(GraniteChip.probe({}).devices) == 1
    chip = GraniteChip.open(0, read_options(GraniteChip, {"memory": "16M"}))
    assert [i.id for i in chip.operators.of("tanh")] == ["granite.tanh", "torch.tanh"]
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    np.testing.assert_allclose(run(chip, "tanh", {"x": x})["y"], np.tanh(x), rtol=1e-6)
    assert chip.memory.info().total == 16 << 20


def test_a_vendor_whose_device_torch_does_not_know_is_told(monkeypatch):
    monkeypatch.setattr(GraniteChip, "_type", "granite")
    assert GraniteChip.probe({}).devices == ()
    assert GraniteChip.probe({}).reason == "torch counts no granite"
    with pytest.raises(ContractError, match="has no device 'granite:0'"):
        GraniteChip.open(0, read_options(GraniteChip, {}))
