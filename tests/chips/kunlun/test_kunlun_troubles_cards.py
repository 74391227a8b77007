"""What goes wrong with cards: sick, shared, slow, short of bytes. The doctor names the device."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kunlun_looked import GREEN, RED, YELLOW, environment, examined
from sim_trees import HOME

from anychip.__main__ import main
from anychip.run import doctor

SICK_LIMIT_S = 4.0


def test_two_ranks_on_one_card(sdk):
    looked = examined(sdk, XPU_VISIBLE_DEVICES="1,1")
    assert (looked.code, looked.red) == (1, {"rank 1"})
    text, step = looked.only(RED, "rank 1")
    assert "card 1 (simulated)" in text and text.endswith("the same card as rank 0 has")
    assert "visible=1,1, variable XPU_VISIBLE_DEVICES" in step
    apart = examined(sdk, XPU_VISIBLE_DEVICES="2,1")
    first, second = (apart.only(GREEN, f"rank {rank}")[0] for rank in (0, 1))
    assert "card 2 (simulated)" in first and "card 1 (simulated)" in second


def test_a_card_that_is_not_there(sdk):
    text, step = examined(sdk, XPU_VISIBLE_DEVICES="0,7").only(RED, "probe")
    assert "option visible=0,7: there is no card '7', there are 3, counted from 0" in text
    assert step == "correct the option visible, or its variable XPU_VISIBLE_DEVICES"


@pytest.mark.usefixtures("compiled")
def test_a_sick_card_that_hangs_costs_bounded_time(sdk, capsys, monkeypatch):
    """Its telemetry is healthy. In this process, which asks children and opens nothing itself."""
    monkeypatch.setattr(doctor, "DEVICE_TIMEOUT_S", SICK_LIMIT_S)
    given = environment(sdk, {"XPUSIM_FAULTS": "sick=1", "XPU_VISIBLE_DEVICES": "1"})
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    words = ["--json", "--backend", "kunlun", "--build-dir", str(HOME / "shim")]
    assert main(["doctor", *words]) == 1
    lines: list[Any] = json.loads(capsys.readouterr().out)
    found = {line["name"]: line for line in lines}
    assert "card 1 (simulated)" in found["rank 0"]["text"]
    sick = found["kunlun device 0"]
    assert (sick["verdict"], sick["text"]) == (RED, "no answer within 4 s")
    assert "look at the card with xpu_smi" in sick["step"] and "visible=" in sick["step"]
    assert found["open"]["text"] == "not looked at: 'device' is not sound"


@pytest.mark.usefixtures("compiled")
def test_a_kernel_exception_names_the_operator_and_the_code(sdk):
    looked = examined(sdk, XPUSIM_FAULTS="kexception@1")
    text, step = looked.only(RED, "kunlun device 0")
    assert "XRE 714 (KEXCEPTION)" in text and "queued since the last wait: add" in text
    assert "xpu_smi" in step


@pytest.mark.usefixtures("compiled")
def test_a_slow_link_is_named(sdk):
    looked = examined(sdk, XPU_VISIBLE_DEVICES="2,1", XPUSIM_FAULTS="slow_link=1:200")
    text, step = looked.only(YELLOW, "links")
    assert "Device 1 has a slow link: more cards are slower with it" in text  # it is card 1 too
    speeds = re.search(r"device 1: (\d+) MB/s in, (\d+) MB/s out", text)
    assert speeds and all(100 < int(speed) <= 200 for speed in speeds.groups())
    assert "leave that card out" in step and looked.code == 0
    told = [f["text"] for f in looked.found if f["name"] == "rank 1"]
    assert len(told) == 1 and "card 1 (simulated)" in told[0]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("number", "way"), [(9, "into"), (10, "out of")])
def test_a_copy_that_is_short_now_and_then(sdk, number, way):
    """Device check and links copy eight times at most: the ninth copy is the doctor's own."""
    looked = examined(sdk, XPUSIM_FAULTS=f"short_copy@{number}")
    assert (looked.code, looked.red) == (1, {"copies"})
    text, step = looked.only(RED, "copies")
    assert text == (
        f"the last 262,144 of 1,048,576 bytes did not arrive on the way {way} the device: "
        "host and device count the length of a copy differently"
    )
    assert step.startswith("anychip conform --backend kunlun") and "--level memory" in step


@pytest.mark.usefixtures("compiled")
def test_copies_that_are_always_short_stop_at_the_device(sdk):
    looked = examined(sdk, XPUSIM_FAULTS="short_copy")
    assert (looked.code, looked.red) == (1, {"kunlun device 0"})
    text, step = looked.only(RED, "kunlun device 0")
    assert text == "1 + 1 gave [2.0, 2.0, 2.0, 0.0]: wrongly added, or bytes did not arrive"
    assert "xpu_smi" in step
