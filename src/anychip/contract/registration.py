"""Who a chip is and what it can do. The front door is `@register_chip` and an entry point."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from anychip.contract.build import Build, Finding
from anychip.contract.cache import NHD
from anychip.contract.dtype import DType
from anychip.contract.errors import ContractError, ErrorFact
from anychip.contract.execution import Queue
from anychip.contract.formats import PLAIN_FORMATS
from anychip.contract.layer import Layer, added, empty_slots, optional, required, takes
from anychip.contract.memory import Memory
from anychip.contract.operators import OperatorTable
from anychip.contract.optional import Capture, Communicator, Telemetry
from anychip.contract.version import CONTRACT, dotted
from anychip.contract.weights import Weights

ENTRY_POINT_GROUP = "anychip.chips"


@dataclass(frozen=True)
class Option:
    """One `--chip-option name=value`. type: int, float, str or bool.

    variable: an environment variable of the vendor's that gives the value where none is typed.
    """

    name: str
    type: type
    default: Any
    help: str
    variable: str = ""


@dataclass(frozen=True)
class Device:
    """One device that a probe found; memory in bytes, 0 where the probe cannot tell cheaply.

    uid: what tells this physical card from every other (a PCI address, a serial number); two
    indices with one uid are one card seen twice. Empty where the probe cannot tell.
    """

    index: int
    name: str
    memory: int = 0
    uid: str = ""


@dataclass(frozen=True)
class Probe:
    """What is there, found without initializing anything. reason: why `devices` is empty."""

    devices: tuple[Device, ...]
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Facts that the core decides by; it never asks for a chip's name.

    activation_dtypes, cache_dtypes, page_sizes: preferred first. weight_formats: what `prepare`
    takes as it is. max_tokens, max_rows: limits of one step, None where there is none.
    step_tokens: token budget of a step that suits the device. facts: for people to read.
    """

    activation_dtypes: tuple[DType, ...]
    cache_dtypes: tuple[DType, ...]
    weight_formats: tuple[str, ...] = PLAIN_FORMATS
    page_sizes: tuple[int, ...] = (1, 16, 32, 64, 128)
    cache_layout: str = NHD
    max_tokens: int | None = None
    max_rows: int | None = None
    step_tokens: int = 1024
    facts: Mapping[str, str] = field(default_factory=dict)


class Chip(Layer, contract=True):
    """One opened device. `open` fixes device, thread and NUMA affinity.

    Attributes set by `open`: memory, queue, operators, weights, build; and, where the chip fills
    the slot, telemetry, communicator, capture.
    """

    name: str = ""
    vendor: str = ""
    contract: tuple[int, int] = (0, 0)
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()  # functions of a newer contract that it cannot do without

    memory: Memory
    queue: Queue
    operators: OperatorTable
    weights: Weights
    build: Build
    telemetry: Telemetry | None = None
    communicator: Communicator | None = None
    capture: Capture | None = None

    @classmethod
    @required
    @added("options")
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Cheap, no initialization, never raises: says why not. `options` as `open` gets them."""
        raise NotImplementedError

    @classmethod
    @required
    def open(cls, device: int, options: Mapping[str, Any]) -> Chip:
        """Open a device; `options` holds every declared option. Raises ChipError."""
        raise NotImplementedError

    @classmethod
    @required
    @added("options")
    def check_device(cls, device: int, timeout: float, options: Mapping[str, Any]) -> Finding:
        """Ones in, one operator, back out, in a child process bounded by `timeout` seconds."""
        raise NotImplementedError

    @classmethod
    @optional
    def toolchain(cls, options: Mapping[str, Any]) -> Build:
        """The build layer of a chip that is not open, and perhaps cannot be: what is installed
        where, and the kernels that can be built for it. Touches no device; never raises."""
        raise NotImplementedError

    @classmethod
    @required
    def map_error(cls, code: int) -> ErrorFact:
        """What a vendor code means; an unknown one keeps its number in the text."""
        raise NotImplementedError

    @required
    def capabilities(self) -> Capabilities:
        """Facts of the opened device."""
        raise NotImplementedError

    @required
    def close(self) -> None:
        """Give back everything. A second close does nothing."""
        raise NotImplementedError


def chip_slots(chip: Chip) -> tuple[str, ...]:
    """Optional parts that an opened chip leaves empty, for people to see."""
    parts = ("telemetry", "communicator", "capture")
    left_out = tuple(p for p in parts if getattr(chip, p) is None) + empty_slots(type(chip))
    return left_out + tuple(
        f"{part}.{name}"
        for part in ("memory", "queue", "build")
        for name in empty_slots(type(getattr(chip, part)))
    )


C = TypeVar("C", bound=type[Chip])


def register_chip(name: str, *, contract: tuple[int, int]) -> Callable[[C], C]:
    """Name a chip class and say which contract it was written for.

    Raises ContractError at once: a name that is no identifier, a class that is no Chip, a major
    that differs, a minor that this core lacks, an option declared twice.
    """

    def mark(cls: C) -> C:
        if not (isinstance(cls, type) and issubclass(cls, Chip)):
            raise ContractError(f"@register_chip({name!r}) takes a class derived from Chip")
        if not name.isidentifier():
            raise ContractError(f"chip name {name!r}: use letters, digits and underscores")
        check_version(name, contract, cls)
        names = [o.name for o in cls.options]
        if len(names) != len(set(names)):
            raise ContractError(f"chip '{name}' declares an option twice: {names}")
        cls.name, cls.contract = name, contract
        return cls

    return mark


def check_version(name: str, contract: tuple[int, int], cls: type[Chip]) -> None:
    """Refuse another major, or a minor that this core does not have yet; older minors work."""
    if contract[0] != CONTRACT[0]:
        raise ContractError(
            f"chip '{name}' is written for contract {dotted(contract)}, this core speaks "
            f"{dotted(CONTRACT)}: another major; install versions that match"
        )
    if contract[1] > CONTRACT[1]:
        lacking = sorted(n for n in cls.needs if not hasattr(Chip, n))
        raise ContractError(
            f"chip '{name}' needs contract {dotted(contract)}, this core has {dotted(CONTRACT)}"
            + (f" and lacks: {', '.join(lacking)}" if lacking else "")
            + "; upgrade anychip"
        )


def probe_chip(cls: type[Chip], options: Mapping[str, Any]) -> Probe:
    """The chip's probe, with its options where it takes them."""
    probe: Callable[..., Probe] = cls.probe
    return probe(options) if takes(probe, "options") else probe()


def check_device(
    cls: type[Chip], device: int, timeout: float, options: Mapping[str, Any]
) -> Finding:
    """The chip's check of a device, with its options where it takes them."""
    check: Callable[..., Finding] = cls.check_device
    if takes(check, "options"):
        return check(device, timeout, options)
    return check(device, timeout)


def variables_of(cls: type[Chip], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options whose vendor variable is set, with its value; the process's own where None."""
    around = os.environ if environment is None else environment
    return {o.name: around[o.variable] for o in cls.options if around.get(o.variable)}


def read_options(
    cls: type[Chip],
    given: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Every declared option: as given, else as its variable says, else its default.

    environment: the process's own where None. An unknown name or value is refused.
    """
    known = {o.name: o for o in cls.options}
    unknown = sorted(set(given) - set(known))
    if unknown:
        offer = ", ".join(sorted(known)) or "none"
        raise ContractError(f"chip '{cls.name}' has no option '{unknown[0]}'; it has: {offer}")
    texts = {**variables_of(cls, environment), **given}
    return {n: _parse(cls.name, o, texts[n]) if n in texts else o.default for n, o in known.items()}


def _parse(chip: str, option: Option, text: str) -> Any:
    if option.type is bool:
        if text.lower() in ("true", "1", "yes", "false", "0", "no"):
            return text.lower() in ("true", "1", "yes")
        raise ContractError(f"chip option {option.name}={text}: say true or false")
    try:
        return option.type(text)
    except ValueError as error:
        raise ContractError(
            f"chip '{chip}': option {option.name}={text} must be {option.type.__name__}: "
            f"{option.help}"
        ) from error


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(chip: str, option: str, text: str) -> int:
    """Bytes of "8G", "64M", "1000", "0", for options that are sizes. Raises ContractError."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if match is None:
        hint = "say a number of bytes, or one with K, M or G behind"
        raise ContractError(f"chip '{chip}': option {option}={text}: {hint}")
    return int(match[1]) * _UNITS[match[2]]
