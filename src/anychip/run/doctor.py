"""What `anychip doctor` sees of a chip: small looks in order, each gives findings. Facts alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.discovery import load_chip, open_chip
from anychip.contract.errors import ChipError
from anychip.contract.layer import empty_slots
from anychip.contract.memory import MemoryInfo
from anychip.contract.registration import (
    Chip,
    Probe,
    check_device,
    chip_slots,
    probe_chip,
    read_options,
)
from anychip.contract.version import CONTRACT, dotted
from anychip.run.divergences import opening
from anychip.run.links import LinkSpeed, link_findings, rank_findings
from anychip.run.plan_run import chip_options
from anychip.run.round_trip import copies_finding
from anychip.run.version_matrix import good_rows, version_findings

DEVICE_TIMEOUT_S = 60.0
"""For `check_device`, which runs in a process of its own and may compile first."""

LITTLE = 0.1
"""Share of the memory: less than this free is told."""

_COMPILER_ERROR = re.compile(r"([^\s:]+:\d+)(?::\d+)?: (?:fatal )?error: (.+)")
_INSTALL = re.compile(r"pip install (?:'[^']+'|\S+)")


@dataclass(frozen=True)
class Look:
    """One look. step: what to do where it fails. gate: where it is bad, no later one is taken."""

    name: str
    take: Callable[[], Iterable[Finding]]
    step: str
    gate: bool = False


def examine(looks: Iterable[Look], stopped: str = "") -> Generator[Finding, None, str]:
    """The findings of all looks, as they are made; whatever a chip raises becomes one.

    stopped: why nothing can be looked at, or empty. Returns the same for looks that come later.
    """
    for look in looks:
        if stopped:
            yield Finding(look.name, Verdict.UNKNOWN, f"not looked at: {stopped}")
            continue
        bad = False
        for finding in _taken(look):
            yield finding
            bad |= finding.verdict is Verdict.BAD
        if look.gate and bad:
            stopped = f"'{look.name}' is not sound"
    return stopped


def _taken(look: Look) -> Iterator[Finding]:
    try:
        for found in look.take():
            yield _with_step(found, look.step)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a chip may raise anything
        text = told(error)
        yield Finding(look.name, Verdict.BAD, text, _source_step(text) or look.step)


def _with_step(found: Finding, step: str) -> Finding:
    """Nothing red is left without a next step."""
    bare = found.verdict is Verdict.BAD and not found.step
    return replace(found, step=step) if bare else found


def _source_step(text: str) -> str:
    """The place that a compiler names first and what is wrong there; empty where none does."""
    found = _COMPILER_ERROR.search(text)
    return f"mend {found[1]}: {found[2]}" if found else ""


def conform_step(config: ServeConfig, level: str = "") -> str:
    """The command that tells more about this chip: about one level of the kit, or all."""
    options = opening(config.backend, config.device_index, config.chip_option)
    return f"anychip conform {options}" + (f" --level {level}" if level else "")


def told(error: BaseException) -> str:
    """An error of ours as it is, another with its class; what is no UTF-8 in it, as escapes."""
    ours = type(error).__module__.startswith("anychip.")
    text = str(error) if ours else f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace").decode()


def closing(close: Callable[[], None]) -> Look:
    """The look that calls `close`: silent where nothing goes wrong."""

    def take() -> tuple[Finding, ...]:
        close()
        return ()

    return Look("close", take, "mend the chip's close")


class ChipLooks:
    """The looks at one chip. Close it: it holds the opened device."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._opened: Chip | None = None

    def all(self) -> tuple[Look, ...]:
        """In order; each needs those before it that are gates."""
        options = "see `anychip chips -v` for devices and options"
        memory = conform_step(self._config, "memory")
        build = "mend the build layer of the chip"
        return (
            Look("contract", self._contract, "see `anychip chips`", gate=True),
            Look("options", self._known_options, f"correct the option; {options}", gate=True),
            Look("toolchain", self._toolchain, build, gate=True),
            Look("probe", self._probe, "mend what the probe names", gate=True),
            Look("device", self._device, "run it again; then look at the driver", gate=True),
            Look("links", self._links, "look at the device's line above"),
            Look("open", self._open, options, gate=True),
            Look("build", self._build, build),
            Look("versions", self._versions, build),
            Look("copies", self._copies, memory, gate=True),
            Look("memory", self._memory, memory),
        )

    def close(self) -> None:
        """Close the device."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @property
    def _chip(self) -> Chip:
        assert self._opened is not None  # "open" is a gate
        return self._opened

    @property
    def _class(self) -> type[Chip]:
        return load_chip(self._config.backend)

    @property
    def _options(self) -> dict[str, Any]:
        """As the device is opened with. Raises ContractError where one is unknown or wrong."""
        return read_options(self._class, chip_options(self._config))

    def _contract(self) -> Iterator[Finding]:
        cls = load_chip(self._config.backend)
        text = f"{cls.name} ({cls.vendor}) is written for contract {dotted(cls.contract)}; this "
        text += f"core has {dotted(CONTRACT)}: compatible"
        yield Finding("contract", Verdict.GOOD, text)

    def _known_options(self) -> tuple[Finding, ...]:
        """Silent where each is known and can be read."""
        assert isinstance(self._options, dict)
        return ()

    @property
    def _has_toolchain(self) -> bool:
        return "toolchain" not in empty_slots(self._class)

    def _toolchain(self) -> Iterator[Finding]:
        """What a chip needs before it can be opened: libraries, symbols, versions."""
        if self._has_toolchain:
            build = self._class.toolchain(self._options)
            yield from build.check()
            yield from version_findings(build)

    def _probe(self) -> Iterator[Finding]:
        index, probe = self._config.device_index, probe_chip(self._class, self._options)
        if not probe.devices:
            text = f"no device: {probe.reason}"
            yield Finding("probe", Verdict.BAD, text, self._way_out(probe))
            return
        there = ", ".join(f"{d.index}: {d.name}" for d in probe.devices)
        if index in {d.index for d in probe.devices}:
            yield Finding("probe", Verdict.GOOD, there)
            if len(probe.devices) > 1 or any(d.uid for d in probe.devices):
                yield from rank_findings(probe.devices, self._listed(len(probe.devices)))
        else:
            step = "choose one of them with --device-index"
            yield Finding("probe", Verdict.BAD, f"no device {index}; there is {there}", step)

    def _way_out(self, probe: Probe) -> str:
        """What to do where there is no device, as far as the reason tells."""
        if install := _INSTALL.search(probe.reason):
            return install[0]
        for option in self._class.options:
            if f"option {option.name}=" in probe.reason:
                variable = f", or its variable {option.variable}" if option.variable else ""
                return f"correct the option {option.name}{variable}"
        if "no driver" in probe.reason:
            return "install the vendor's kernel driver, or load it; its own tool must list the card"
        step = f"mend what the reason names, then: anychip doctor --backend {self._class.name}"
        # Where versions are known the libraries answer, and still there is no device.
        return step + (self._good_together(probe.versions) if probe.versions else "")

    def _listed(self, devices: int) -> str:
        """The options, and their variables, that list as many numbers as there are devices."""
        values, numbers = self._options, re.compile(r"\d+(?:\s*,\s*\d+)*")
        found = [
            f"{o.name}={values[o.name]}" + (f", variable {o.variable}" if o.variable else "")
            for o in self._class.options
            if numbers.fullmatch(text := str(values[o.name])) and text.count(",") + 1 == devices
        ]
        return "; ".join(found)

    def _good_together(self, versions: Mapping[str, str]) -> str:
        """What the chip's matrix records as good of such parts; empty where it has none."""
        if not self._has_toolchain:
            return ""
        build = self._class.toolchain(self._options)
        return "" if "matrix" in empty_slots(type(build)) else good_rows(build.matrix(), versions)

    def _device(self) -> Iterator[Finding]:
        """Kernels are built here: what the SDK lacks for them is no fault of the device."""
        if self._has_toolchain:
            try:
                self._class.toolchain(self._options).compile()
            except ChipError as error:
                step = _source_step(told(error)) or f"anychip build {self._config.backend}"
                yield Finding("kernels", Verdict.BAD, told(error), step)
                return
        index = self._config.device_index
        yield check_device(self._class, index, DEVICE_TIMEOUT_S, self._options)

    def _links(self) -> Iterator[Finding]:
        """Each device is opened in a process of its own: one that hangs costs its own number."""
        config, speeds = self._config, dict[int, LinkSpeed]()
        options = chip_options(config)
        for device in probe_chip(self._class, self._options).devices:
            question = {"chip": config.backend, "device": device.index, "options": options}
            try:
                seen = run_in_child("anychip.run.links:copy_speed", question, DEVICE_TIMEOUT_S)
            except ChildFailed as error:
                text = f"no copy to or from device {device.index}: {error}"
                yield Finding("links", Verdict.UNKNOWN, text, "leave that device out, or mend it")
            else:
                speeds[device.index] = LinkSpeed(**seen)
        yield from link_findings(speeds)

    def _open(self) -> Iterator[Finding]:
        config = self._config
        self._opened = open_chip(config.backend, config.device_index, chip_options(config))
        facts = self._chip.capabilities()
        dtypes = ", ".join(d.value for d in facts.activation_dtypes)
        text = f"computes in {dtypes}; takes weights in {', '.join(facts.weight_formats)}"
        yield Finding("open", Verdict.GOOD, text)
        if empty := chip_slots(self._chip):
            yield Finding("optional parts", Verdict.GOOD, f"left out: {', '.join(empty)}")

    def _build(self) -> Iterator[Finding]:
        if not self._has_toolchain:  # otherwise it was looked at before
            yield from self._chip.build.check()

    def _versions(self) -> Iterator[Finding]:
        if not self._has_toolchain:
            yield from version_findings(self._chip.build)

    def _copies(self) -> Iterator[Finding]:
        yield copies_finding(self._chip.memory, conform_step(self._config, "memory"))

    def _memory(self) -> Iterator[Finding]:
        yield _memory_finding(self._chip.memory.info())


def _memory_finding(info: MemoryInfo) -> Finding:
    sizes = {"total": info.total, "used": info.used, "free": info.free, "largest": info.largest}
    text = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in sizes.items())
    text += f" ({info.source})"
    if not 0 <= info.largest <= info.free <= info.total or info.used < 0:
        step = "mend the chip's memory.info: largest <= free <= total"
        return Finding("memory", Verdict.BAD, text, step)
    if info.free < LITTLE * info.total:
        return Finding("memory", Verdict.UNKNOWN, text, "little is free: end what uses it")
    return Finding("memory", Verdict.GOOD, text)
