"""The kunlun chip: which cards are there, and how one is opened."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from anychip.chips.kunlun.build import KunlunBuild, find_sdk
from anychip.chips.kunlun.communicator import Bkcl
from anychip.chips.kunlun.memory import CHIP, ERRORS, PAGE, Xre, XreDriver
from anychip.chips.kunlun.operators import MOST_ROWS, Shim, operator_table
from anychip.chips.kunlun.telemetry import KunlunTelemetry, XpuML
from anychip.contract.build import Build
from anychip.contract.cache import HND
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ContractError, ErrorFact
from anychip.contract.registration import Capabilities, Option, register_chip
from anychip.sdkbase.blocks import Blocks, Granularity, Measured
from anychip.sdkbase.communicator import RankCommunicator
from anychip.sdkbase.library import load_in_order
from anychip.sdkbase.machine import card_of, on_the_bus, strange_tools
from anychip.sdkbase.memory import PeerMemory
from anychip.sdkbase.registration import SdkChip, Seen, looked
from anychip.sdkbase.sdk import Sdk, sdk_options
from anychip.sdkbase.stream import ASK_SECONDS, Stream, StreamQueue
from anychip.sdkbase.weights import DenseWeights

VENDOR = "0x1d22"
"""On the PCI bus."""
MODELS = {0x3688: "P800", 0x3686: "P800 PCIe"}
PCI_ADDRESS, MODEL = 0, 4
"""Device attributes of XRE."""
SECOND_GENERATION, BLOCK = range(2, 300), 4 << 30
"""Models of the R200's family; one allocation seems to stay inside such a block there: a guess."""
NO_DRIVER = (ERRORS.code("XPUML", 9), ERRORS.code("XRE", 703))
DTYPES = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)


@register_chip(CHIP, contract=(0, 3))
class KunlunChip(SdkChip):
    """One card, through XRE, XPUML and the operator libraries of the vendor's SDK."""

    vendor = "kunlunxin"
    options = (
        *sdk_options("KUNLUN_SDK_ROOT", "KUNLUN_RUNTIME_LIB"),
        Option("visible", str, "", "cards in the order of ranks: 0,1", "XPU_VISIBLE_DEVICES"),
    )
    _needed = ("xpurt", "xpuml")
    _install = "install XRE, or set KUNLUN_SDK_ROOT and KUNLUN_RUNTIME_LIB"
    _if_sick = "look at the card with xpu_smi, reset it or leave it out with visible="
    _look = f"{__name__}:look"

    @classmethod
    def _sdk(cls, options: Mapping[str, Any]) -> Sdk:
        return find_sdk(options)

    @classmethod
    def _elsewhere(cls) -> str:
        """The PCI bus, and tools of a name that another vendor uses too."""
        tools = strange_tools(("xpu_smi", "xpu-smi"), "XPU-RT")
        return "; ".join((on_the_bus(VENDOR), *tools))

    def _set_up(self, device: int, options: Mapping[str, Any], closing: ExitStack) -> None:
        self.build = KunlunBuild(options)
        sdk = self.build.sdk
        if lacking := self._lacking(sdk):
            raise ERRORS.unfit(lacking)
        compiled = self.build.compile()
        load_in_order(sdk.load_order, ERRORS)
        xre, xpuml = Xre(sdk.libraries["xpurt"]), XpuML(sdk.libraries["xpuml"])
        closing.callback(xpuml.close)
        card = card_of(CHIP, str(options["visible"]), xpuml.count(), device)
        driver = XreDriver(xre, _number(xre, xpuml.pci(card).bus_id, (device, card)))
        stream = Stream(CHIP, driver)
        closing.callback(stream.close)
        blocks = _blocks(stream, driver, device, lambda: xpuml.memory(card))
        closing.callback(blocks.close)
        self.memory, self.queue = PeerMemory(stream, blocks, driver), StreamQueue(stream)
        shim = Shim(compiled, blocks.address)
        closing.callback(shim.close)
        shim.open(stream.handle, lambda: stream.wait(ASK_SECONDS))
        self.operators = operator_table(shim, stream, simulated=sdk.simulated)
        self.weights = DenseWeights(CHIP, self.memory)
        self.telemetry = KunlunTelemetry(xpuml, card, self.memory.info)
        if "bkcl" in sdk.libraries:
            bkcl = Bkcl(sdk.libraries["bkcl"])
            closing.callback(bkcl.close)
            self.communicator = RankCommunicator(bkcl, self.memory, blocks.address, stream)
        self._facts = {
            "SDK": f"{sdk.where}{', SIMULATED' if sdk.simulated else ''}",
            "versions": f"driver {xpuml.driver_version()}, runtime {xre.version('runtime')}",
            "card": f"{card}, number {driver.number} of the runtime",
        }
        closing.callback(stream.sound)

    @classmethod
    def toolchain(cls, options: Mapping[str, Any]) -> Build:
        """The build layer, which needs no card."""
        return KunlunBuild(options)

    @classmethod
    def map_error(cls, code: int) -> ErrorFact:
        """Codes of XRE as they are, of the other libraries as `memory.ERRORS` says."""
        return ERRORS.fact(code)

    def capabilities(self) -> Capabilities:
        """What the operators' table covers; nothing of it was run on a card."""
        return Capabilities(
            activation_dtypes=DTYPES,
            cache_dtypes=DTYPES,
            page_sizes=(16, 64, 32, 128),
            cache_layout=HND,
            max_rows=MOST_ROWS,
            step_tokens=512,
            facts=self._facts,
        )


def _blocks(
    stream: Stream, driver: XreDriver, device: int, ask: Callable[[], tuple[int, int, int]]
) -> Blocks:
    """The card's memory. ask: what XPUML measures of it, since the runtime has no such call."""
    model = _attribute(driver.xre, MODEL, driver.number)
    limit = BLOCK if model in SECOND_GENERATION else 0
    measure = lambda: Measured(*ask()[:2], "XPUML")  # noqa: E731
    return Blocks(stream, device, measure, Granularity(PAGE, block_limit=limit))


def _number(xre: Xre, bus_id: str, likely: tuple[int, ...]) -> int:
    """What the runtime calls the card at that PCI address: visible cards may be counted anew."""
    there = range(xre.ask("xpu_device_count", ctypes.c_int))
    dumb: dict[int, str] = {}
    order: list[int] = [*likely, *(number for number in there if number not in likely)]
    for number in order:
        try:
            if number in there and _bus_id(_attribute(xre, PCI_ADDRESS, number)) == bus_id.lower():
                return number
        except ChipError as error:  # one card that is lost keeps no other from being found
            dumb[number] = f"; its number {number} does not answer: {error.fact.text}"
    text = f"the runtime shows {len(there)} cards, none at {bus_id}: see XPU_VISIBLE_DEVICES"
    raise ContractError(f"chip '{CHIP}': {text}{''.join(dumb.values())}")


def _attribute(xre: Xre, attribute: int, number: int) -> int:
    return xre.ask("xpu_device_get_attr", ctypes.c_uint64, attribute, number)


def _bus_id(bits: int) -> str:
    slot, function = bits >> 3 & 0x1F, bits & 7
    return f"{bits >> 16:08x}:{bits >> 8 & 0xFF:02x}:{slot:02x}.{function}"


def look(paths: Mapping[str, str]) -> dict[str, Any]:
    """In a child process: what the two libraries tell without touching a card."""

    def ask(seen: Seen) -> None:
        xpuml = XpuML(paths["xpuml"])
        seen.versions["driver"] = xpuml.driver_version()
        xre = Xre(paths["xpurt"])
        seen.versions["runtime"] = xre.version("runtime")
        xre.ask("xpu_device_count", ctypes.c_int)
        seen.cards += [_card(xpuml, index) for index in range(xpuml.count())]

    return looked(ask, NO_DRIVER)


def _card(xpuml: XpuML, index: int) -> tuple[str, int, str]:
    try:
        place, total = xpuml.pci(index), xpuml.memory(index)[0]
        name = MODELS.get(place.device, f"Kunlun {place.device:#06x}")
        return name, total, f"{place.bus_id} {xpuml.serial(index)}"
    except ChipError as error:  # one card that is lost hides no other
        return f"no answer ({error.fact.text})", 0, ""
