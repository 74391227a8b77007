"""The kunlun chip: which cards are there, and how one is opened."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from array import array
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from anychip.chips.kunlun.build import KunlunBuild, Sdk, find_sdk
from anychip.chips.kunlun.communicator import Bkcl, KunlunCommunicator
from anychip.chips.kunlun.memory import CHIP, KunlunMemory, KunlunQueue, Stream, Xre, error_fact
from anychip.chips.kunlun.operators import MOST_ROWS, KunlunWeights, Shim, operator_table
from anychip.chips.kunlun.telemetry import KunlunTelemetry, XpuML
from anychip.contract.build import Build, Finding, Verdict
from anychip.contract.cache import HND
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, ContractError, ErrorFact, ErrorKind
from anychip.contract.operators import Call, CallSpec
from anychip.contract.registration import Capabilities, Chip, Device, Option, Probe, register_chip
from anychip.contract.tensor import Tensor

PCI, VENDOR = Path("/sys/bus/pci/devices"), "0x1d22"
MODELS = {0x3688: "P800", 0x3686: "P800 PCIe"}
PCI_ADDRESS, MODEL = 0, 4
"""Device attributes of XRE."""
SECOND_GENERATION, BLOCK = range(2, 300), 4 << 30
"""Models of the R200's family; one allocation seems to stay inside such a block there: a guess."""
LOOK_SECONDS = 20.0
"""For the process that asks the libraries; it takes a fraction of a second."""
DTYPES = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)


@register_chip(CHIP, contract=(0, 3))
class KunlunChip(Chip):
    """One card, through XRE, XPUML and the operator libraries of the vendor's SDK."""

    vendor = "kunlunxin"
    options = (
        Option("sdk_root", str, "", "folder of the SDK", "KUNLUN_SDK_ROOT"),
        Option("runtime_lib", str, "", "folder with libxpurt.so", "KUNLUN_RUNTIME_LIB"),
        Option("include_dirs", str, "", "further folders of headers, separated by commas"),
        Option("library_dirs", str, "", "further folders of libraries, separated by commas"),
        Option("define", str, "", "macros for the shim: NAME=VALUE, separated by commas"),
        Option("build_dir", str, "", "folder for the compiled shim"),
        Option("visible", str, "", "cards in the order of ranks: 0,1", "XPU_VISIBLE_DEVICES"),
    )

    def __init__(self, device: int, options: Mapping[str, Any], closing: ExitStack) -> None:
        sdk, self.build, self._closing = find_sdk(options), KunlunBuild(options), closing
        compiled = self.build.compile()
        _load(sdk)
        xre, xpuml = Xre(sdk.libraries["xpurt"]), XpuML(sdk.libraries["xpuml"])
        closing.callback(xpuml.close)
        card = _card_of(options, xpuml.count(), device)
        stream = Stream(xre, _number(xre, xpuml.pci(card).bus_id, (device, card)))
        closing.callback(stream.close)
        limit = BLOCK if _attribute(xre, MODEL, stream.device) in SECOND_GENERATION else 0
        memory = KunlunMemory(stream, device, lambda: xpuml.memory(card), limit)
        closing.callback(memory.close)
        shim = Shim(compiled)
        closing.callback(shim.close)
        self.memory, self.queue = memory, KunlunQueue(stream)
        self.operators = operator_table(shim, memory, self.queue, simulated=sdk.simulated)
        self.weights = KunlunWeights(memory)
        self.telemetry = KunlunTelemetry(xpuml, card, memory.info)
        if "bkcl" in sdk.libraries:
            bkcl = Bkcl(sdk.libraries["bkcl"])
            closing.callback(bkcl.close)
            self.communicator = KunlunCommunicator(bkcl, memory, stream)
        self._facts = {
            "SDK": f"{sdk.where}{', SIMULATED' if sdk.simulated else ''}",
            "versions": f"driver {xpuml.driver_version()}, runtime {xre.version('runtime')}",
            "card": f"{card}, number {stream.device} of the runtime",
        }

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Asks the libraries in a child process: a broken one ends that, not this."""
        sdk = find_sdk(options)
        if lacking := _lacking(sdk):
            return Probe((), f"{lacking}; {_machine()}")
        paths = {name: str(sdk.libraries[name]) for name in ("xpurt", "xpuml")}
        try:
            seen = run_in_child(f"{__name__}:look", paths, LOOK_SECONDS)
            cards = [] if seen["problem"] else _cards(options, len(seen["cards"]))
        except (ChildFailed, ContractError) as error:
            return Probe((), f"{error} ({sdk.where})")
        if seen["problem"]:
            return Probe((), f"{seen['problem']} ({sdk.where}); {_machine()}", seen["versions"])
        note = " (simulated)" if sdk.simulated else ""
        devices = []
        for index, card in enumerate(cards):
            model, memory, uid = seen["cards"][card]
            devices.append(Device(index, f"{model}, card {card}{note}", memory, uid))
        return Probe(tuple(devices), "", seen["versions"])

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> KunlunChip:
        """Builds the shim where it is not in the cache. Raises ChipError, ContractError."""
        with ExitStack() as closing:
            chip = cls(device, options, closing)
            chip._closing = closing.pop_all()
        return chip

    @classmethod
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, added to themselves, back out, in a child process: it may hang there."""
        name = f"{CHIP} device {device}"
        question = {"device": device, "options": dict(options)}
        try:
            seen = run_in_child(f"{__name__}:double_ones", question, timeout)
        except ChildFailed as error:
            step = "look at the card with xpu_smi, reset it or leave it out with visible="
            return Finding(name, Verdict.BAD, str(error), step)
        good = seen == [2.0] * 4
        text = "ones were added on the device" if good else f"1 + 1 gave {seen}"
        return Finding(name, Verdict.GOOD if good else Verdict.BAD, text)

    @classmethod
    def toolchain(cls, options: Mapping[str, Any]) -> Build:
        """The build layer, which needs no card."""
        return KunlunBuild(options)

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """Codes of XRE as they are, of the other libraries as `memory.SPACES` says."""
        return error_fact(code)

    def capabilities(self) -> Capabilities:
        """What the operators' table covers; nothing of it was run on a card."""
        return Capabilities(
            activation_dtypes=DTYPES,
            cache_dtypes=DTYPES,
            page_sizes=(64, 16, 32, 128),
            cache_layout=HND,
            max_rows=MOST_ROWS,
            step_tokens=512,
            facts=self._facts,
        )

    def close(self) -> None:
        """Give back memory, queue and libraries; a second time does nothing."""
        self._closing.close()


def _lacking(sdk: Sdk) -> str:
    """Which library the chip cannot do without is not there, and what to do; empty for none."""
    lacking = " and ".join(f"lib{n}.so" for n in ("xpurt", "xpuml") if n not in sdk.libraries)
    step = "install XRE, or set KUNLUN_SDK_ROOT and KUNLUN_RUNTIME_LIB"
    return f"no {lacking} ({sdk.where}): {step}" if lacking else ""


def _load(sdk: Sdk) -> None:
    """All libraries by path, so that they find each other without LD_LIBRARY_PATH."""
    try:
        if lacking := _lacking(sdk):
            raise OSError(lacking)
        for path in sdk.load_order:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        fact = ErrorFact(ChipLayer.BUILD, ErrorKind.VERSION, True, str(error))
        raise ChipError(fact, chip=CHIP) from error


def _cards(options: Mapping[str, Any], count: int) -> list[int]:
    """Physical cards in the order of ranks. Raises ContractError."""
    words = [w.strip() for w in str(options["visible"]).split(",") if w.strip()]
    if wrong := [w for w in words if not w.isdigit() or int(w) >= count]:
        text = f"there is no card '{wrong[0]}', there are {count}, counted from 0"
        raise ContractError(f"chip '{CHIP}': option visible={options['visible']}: {text}")
    return [int(w) for w in words] or list(range(count))


def _card_of(options: Mapping[str, Any], count: int, device: int) -> int:
    cards = _cards(options, count)
    if device not in range(len(cards)):
        text = f"there is no device {device}, {len(cards)} cards are visible"
        raise ContractError(f"chip '{CHIP}': {text}")
    return cards[device]


def _number(xre: Xre, bus_id: str, likely: tuple[int, ...]) -> int:
    """What the runtime calls the card at that PCI address: visible cards may be counted anew."""
    there = range(xre.ask("xpu_device_count", ctypes.c_int))
    for number in chain(likely, there):
        if number in there and _bus_id(_attribute(xre, PCI_ADDRESS, number)) == bus_id.lower():
            return number
    text = f"the runtime shows {len(there)} cards, none at {bus_id}: see XPU_VISIBLE_DEVICES"
    raise ContractError(f"chip '{CHIP}': {text}")


def _attribute(xre: Xre, attribute: int, number: int) -> int:
    return xre.ask("xpu_device_get_attr", ctypes.c_uint64, attribute, number)


def _bus_id(bits: int) -> str:
    slot, function = bits >> 3 & 0x1F, bits & 7
    return f"{bits >> 16:08x}:{bits >> 8 & 0xFF:02x}:{slot:02x}.{function}"


def _machine() -> str:
    """What else tells of cards: the PCI bus, and a tool whose name another vendor uses too."""
    vendors = [file.read_text().strip() for file in PCI.glob("*/vendor")]
    told = f"the PCI bus has {vendors.count(VENDOR)} devices of vendor {VENDOR}"
    for tool in filter(None, map(shutil.which, ("xpu_smi", "xpu-smi"))):
        try:
            said = subprocess.run(
                [tool], capture_output=True, text=True, errors="replace", timeout=10, check=False
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error)
        if said and "XPU-RT" not in said:
            told += f"; {tool} is another vendor's tool, or broken: {said.splitlines()[0]}"
    return told


def look(paths: Mapping[str, str]) -> dict[str, Any]:
    """In a child process: what the two libraries tell without touching a card.

    cards: name, bytes of memory and what identifies each. problem: why there are none.
    """
    seen: dict[str, Any] = {"cards": [], "versions": {}, "problem": ""}
    try:
        _look(paths, seen)
    except ChipError as error:
        versions = ", ".join(f"{name} {number}" for name, number in seen["versions"].items())
        no_driver = {30_009: "no driver: ", 703: "no driver: "}.get(error.code or 0, "")
        seen["problem"] = f"{no_driver}{error.fact.text}" + (f" ({versions})" if versions else "")
    return seen


def _look(paths: Mapping[str, str], seen: dict[str, Any]) -> None:
    xpuml = XpuML(paths["xpuml"])
    seen["versions"]["driver"] = xpuml.driver_version()
    xre = Xre(paths["xpurt"])
    seen["versions"]["runtime"] = xre.version("runtime")
    xre.ask("xpu_device_count", ctypes.c_int)
    seen["cards"] = [_card(xpuml, index) for index in range(xpuml.count())]
    if not seen["cards"]:
        seen["problem"] = "libraries and driver are there, a card is not"


def _card(xpuml: XpuML, index: int) -> tuple[str, int, str]:
    try:
        place, total = xpuml.pci(index), xpuml.memory(index)[0]
        name = MODELS.get(place.device, f"Kunlun {place.device:#06x}")
        return name, total, f"{place.bus_id} {xpuml.serial(index)}"
    except ChipError as error:  # one card that is lost hides no other
        return f"no answer ({error.fact.text})", 0, ""


def double_ones(question: Mapping[str, Any]) -> list[float]:
    """In the child process of `check_device`."""
    chip = KunlunChip.open(question["device"], question["options"])
    ones, y = (Tensor((4,), DType.FLOAT32, buffer=chip.memory.allocate(16)) for _ in range(2))
    chip.memory.copy_in(ones, memoryview(array("f", [1.0] * 4)))
    spec = CallSpec("add", {"a": ones.spec, "b": ones.spec}, {"y": y.spec}, {})
    chip.operators.of("add")[0].prepare(Call(spec, {"a": ones, "b": ones}, {"y": y}))()
    result = array("f", [0.0] * 4)
    chip.memory.copy_out(y, memoryview(result))
    chip.close()
    return list(result)
