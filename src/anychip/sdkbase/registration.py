"""The chip class to derive from: a probe that cannot hurt, a device that opens whole or not at
all, a check of one device that may hang."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from anychip.contract.build import Finding
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.device_check import check_in_child
from anychip.contract.errors import ChipError, ChipLayer, ContractError
from anychip.contract.layer import empty_slots
from anychip.contract.registration import Chip, Device, Probe
from anychip.sdkbase.build import red
from anychip.sdkbase.machine import visible_cards
from anychip.sdkbase.sdk import Sdk

LOOK_SECONDS = 20.0
"""For the process that asks the libraries; it takes a fraction of a second."""


@dataclass
class Seen:
    """What libraries tell without touching a card. cards: name, bytes of memory and what
    identifies each. problem: why there are none. unloaded: since a library does not load."""

    cards: list[tuple[str, int, str]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    unloaded: bool = False


class SdkChip(Chip, abstract=True):
    """One card of a vendor whose SDK is found in the file system.

    A vendor writes `_sdk`, `_set_up`, `_elsewhere`, and a function `_look` ("module:name") that is
    called in a child process with the paths of the libraries `_needed` and gives a `Seen` as a
    dict; of the contract `vendor`, `options`, `toolchain`, `map_error` and `capabilities`.
    _install: what to do where one of these is not there. _if_sick: what to do with a card
    that does not work. The option `visible` names cards in the order of ranks.
    """

    _needed: tuple[str, ...] = ()
    _install: str = ""
    _if_sick: str = ""
    _look: str = ""
    _closing: ExitStack

    @classmethod
    def _sdk(cls, options: Mapping[str, Any]) -> Sdk:
        """The SDK that these options lead to."""
        raise NotImplementedError

    @classmethod
    def _elsewhere(cls) -> str:
        """What else in the machine tells of cards, for people whose probe found none."""
        raise NotImplementedError

    def _set_up(self, device: int, options: Mapping[str, Any], closing: ExitStack) -> None:
        """Fill every slot. closing: what gives back, last first; also where this raises. So
        `Stream.sound` comes last: it waits for the queue, with the device current, before anything
        that queued work uses goes."""
        raise NotImplementedError

    @classmethod
    def open(cls, device: int, options: Mapping[str, Any]) -> SdkChip:
        """Open it, the shim built where it is not in the cache. Raises ChipError, ContractError."""
        chip = cls()
        with ExitStack() as closing:
            chip._set_up(device, options, closing)
            chip._closing = closing.pop_all()
        return chip

    def close(self) -> None:
        """Give back memory, queue and libraries; a second time does nothing."""
        self._closing.close()

    @classmethod
    def _lacking(cls, sdk: Sdk) -> str:
        """Which library the chip cannot do without is not there, or which place that was named
        does not hold one, and what to do; else empty."""
        if sdk.misplaced:
            return red(sdk.misplaced)
        lacking = " and ".join(f"lib{n}.so" for n in cls._needed if n not in sdk.libraries)
        return f"no {lacking} ({sdk.where}): {cls._install}" if lacking else ""

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Asks the libraries in a child process: a broken one ends that, not this."""
        sdk = cls._sdk(options)
        if lacking := cls._lacking(sdk):
            return Probe((), f"{lacking}; {cls._elsewhere()}")
        paths = {name: str(sdk.libraries[name]) for name in cls._needed}
        try:
            seen = Seen(**run_in_child(cls._look, paths, LOOK_SECONDS))
            shown = [] if seen.problem else cls._visible(options, len(seen.cards))
        except ContractError as error:
            return Probe((), f"{error} ({sdk.where})")
        except ChildFailed as error:
            return Probe((), f"{cls._unsound(options) or error} ({sdk.where})")
        if seen.problem:
            unsound = cls._unsound(options) if seen.unloaded else ""
            reason = f"{unsound or seen.problem} ({sdk.where}); {cls._elsewhere()}"
            return Probe((), reason, seen.versions)
        note = " (simulated)" if sdk.simulated else ""
        devices = []
        for index, card in enumerate(shown):
            name, memory, uid = seen.cards[card]
            devices.append(Device(index, f"{name}, card {card}{note}", memory, uid))
        return Probe(tuple(devices), "", seen.versions)

    @classmethod
    def _unsound(cls, options: Mapping[str, Any]) -> str:
        """Which library lacks what, the package to blame and the variable to set; else empty."""
        if "toolchain" in empty_slots(cls):
            return ""
        return red(cls.toolchain(options).check())

    @classmethod
    def _visible(cls, options: Mapping[str, Any], count: int) -> list[int]:
        return visible_cards(cls.name, str(options.get("visible") or ""), count)

    @classmethod
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, added to themselves, back out, in a child process: it may hang there."""
        return check_in_child(cls, device, timeout, options, cls._if_sick)


def looked(look: Callable[[Seen], None], no_driver: Collection[int] = ()) -> dict[str, Any]:
    """In a child process: what `look` fills in before it is through or raises ChipError.

    no_driver: codes that mean that the kernel driver is not there.
    """
    seen = Seen()
    try:
        look(seen)
    except ChipError as error:
        versions = ", ".join(f"{name} {number}" for name, number in seen.versions.items())
        head = "no driver: " if error.code in no_driver else ""
        seen.problem = f"{head}{error.fact.text}" + (f" ({versions})" if versions else "")
        seen.unloaded = error.fact.layer is ChipLayer.BUILD
    if not seen.cards and not seen.problem:
        seen.problem = "libraries and driver are there, a card is not"
    return asdict(seen)
