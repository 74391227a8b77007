"""Proof of the registration layer: who the chip is, what it can do, how it is found and opened."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from anychip.conform.expect import Broken, expect, judged, within
from anychip.conform.proof import Check, Level, Proof, passed
from anychip.conform.subject import Subject
from anychip.contract.build import Build, Finding, Verdict
from anychip.contract.dtype import DType
from anychip.contract.errors import (
    ChipError,
    ChipLayer,
    ContractError,
    ErrorFact,
    ErrorKind,
)
from anychip.contract.execution import Queue
from anychip.contract.formats import BLOCK_FORMATS, GROUPED, PLAIN_FORMATS, W8A8
from anychip.contract.memory import Memory
from anychip.contract.operators import OperatorTable
from anychip.contract.optional import Capture, Communicator, Telemetry
from anychip.contract.registration import (
    Capabilities,
    Chip,
    Option,
    Probe,
    check_device,
    check_version,
    chip_slots,
    probe_chip,
    read_options,
)
from anychip.contract.version import dotted
from anychip.contract.weights import Weights

PARTS: Mapping[str, type] = {
    "memory": Memory,
    "queue": Queue,
    "operators": OperatorTable,
    "weights": Weights,
    "build": Build,
}
SLOTS: Mapping[str, type] = {
    "telemetry": Telemetry,
    "communicator": Communicator,
    "capture": Capture,
}
OPTION_TYPES = (int, float, str, bool)
UNDECLARED = "no_such_option"
CODES = (-1, *range(256), 65535)
UNHEARD_OF = (987654, -987654)
"""Codes that no vendor has: their numbers are all that there is to tell."""
CHECK_SECONDS = 60.0
TOO_SHORT = 0.001
"""No Python starts in a millisecond, so no child can have computed anything."""
PATIENCE = 10.0
"""Seconds within which a check that was given TOO_SHORT must have given up."""


def checks(subject: Subject) -> list[Check]:
    """P1, P2, D1, D2, D3."""
    level = Level.REGISTRATION
    return [
        Check("P1", level, _class, gate=True),
        Check("P2", level, _capabilities),
        Check("D1", level, _probe, gate=True),
        Check("D2", level, _device),
        Check("D3", level, _errors),
    ]


@judged
def _class(subject: Subject) -> Proof:
    cls = subject.cls
    expect(cls.name.isidentifier(), f"the chip's name {cls.name!r} is not an identifier")
    expect(bool(cls.vendor), "the chip names no vendor")
    try:
        check_version(cls.name, cls.contract, cls)
    except ContractError as error:
        raise Broken(str(error)) from error
    _check_options(cls)
    _check_parts(subject.chip)
    empty = ", ".join(chip_slots(subject.chip)) or "none"
    contract = f"contract {dotted(cls.contract)}, {len(cls.options)} options"
    return passed(f"{cls.name} by {cls.vendor}, {contract}, empty slots: {empty}")


def _check_options(cls: type[Chip]) -> None:
    for option in cls.options:
        _check_option(option)
    names = [o.name for o in cls.options]
    expect(len(names) == len(set(names)), f"an option is declared twice: {names}")
    read_options(cls, {})
    _expect_no_option(cls, UNDECLARED, "1")
    for option in cls.options:
        if option.type is not str:
            _expect_no_option(cls, option.name, "neither a number nor a truth")


def _check_option(option: Option) -> None:
    name = f"option {option.name!r}"
    words = ", ".join(t.__name__ for t in OPTION_TYPES)
    expect(option.type in OPTION_TYPES, f"{name} is of type {option.type!r}, not one of {words}")
    kind = type(option.default)
    text = f"the default of {name} is {option.default!r}, a {kind.__name__}"
    expect(kind is option.type, f"{text} and not a {option.type.__name__}")
    expect(bool(option.help), f"{name} has no help text")


def _expect_no_option(cls: type[Chip], name: str, value: str) -> None:
    try:
        read_options(cls, {name: value})
    except ContractError:
        return
    raise Broken(f"option {name}={value} is accepted")


def _check_parts(chip: Chip) -> None:
    expect(isinstance(chip, Chip), f"open gives a {type(chip).__name__}, not a Chip")
    for name, kind in PARTS.items():
        part = getattr(chip, name, None)
        text = f"'{name}' of the opened chip is a {type(part).__name__}, not a {kind.__name__}"
        expect(isinstance(part, kind), text)
    for name, kind in SLOTS.items():
        part = getattr(chip, name)
        text = f"'{name}' of the opened chip is a {type(part).__name__}"
        expect(part is None or isinstance(part, kind), f"{text}, neither None nor {kind.__name__}")
    alignment = chip.memory.alignment
    whole = isinstance(alignment, int) and alignment > 0 and not alignment & (alignment - 1)
    expect(whole, f"memory.alignment is {alignment!r}, not a power of two")


@judged
def _capabilities(subject: Subject) -> Proof:
    said = subject.chip.capabilities()
    expect(isinstance(said, Capabilities), f"capabilities gives a {type(said).__name__}")
    _check_dtypes(subject.chip, said)
    _check_formats(said)
    _check_limits(said)
    expect(said == subject.chip.capabilities(), "capabilities differ when asked a second time")
    dtypes, pages = _words(said.activation_dtypes), _words(said.page_sizes)
    return passed(f"computes in {dtypes}; pages of {pages}; weights {_words(said.weight_formats)}")


def _words(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _check_dtypes(chip: Chip, said: Capabilities) -> None:
    for name in ("activation_dtypes", "cache_dtypes"):
        values = getattr(said, name)
        expect(bool(values), f"{name} is empty")
        strange = [v for v in values if not isinstance(v, DType)]
        expect(not strange, f"{name} holds {strange}, which the contract does not know")
        expect(len(set(values)) == len(values), f"{name} holds a dtype twice: {_words(values)}")
    rows = [row for i in chip.operators.implementations for row in i.dtypes]
    served = {dtype for row in rows for types in row.types.values() for dtype in types}
    for dtype in said.activation_dtypes:
        expect(dtype.is_float, f"activation dtype {dtype} is no float type")
        expect(dtype.value in served, f"activation dtype {dtype} is in no dtype row of the table")


def _check_formats(said: Capabilities) -> None:
    known = sorted({*PLAIN_FORMATS, *BLOCK_FORMATS, *W8A8, *(g.name for g in GROUPED)})
    expect(bool(said.weight_formats), "weight_formats is empty")
    strange = [f for f in said.weight_formats if f not in known]
    expect(not strange, f"weight_formats holds {strange}; known are {_words(known)}")


def _check_limits(said: Capabilities) -> None:
    pages = said.page_sizes
    right = bool(pages) and all(isinstance(p, int) and p > 0 for p in pages)
    expect(right and len(set(pages)) == len(pages), f"page_sizes {pages}: positive, each once")
    for name in ("max_tokens", "max_rows"):
        limit = getattr(said, name)
        right = limit is None or (isinstance(limit, int) and limit > 0)
        expect(right, f"{name} is {limit!r}, neither None nor a positive number")
    expect(said.step_tokens > 0, f"step_tokens is {said.step_tokens}, it must be positive")
    layout = said.cache_layout
    expect(isinstance(layout, str) and bool(layout), f"cache_layout is {layout!r}, not a word")


@judged
def _probe(subject: Subject) -> Proof:
    probe = probe_chip(subject.cls, subject.options)
    reason = probe.reason or "and the probe gives no reason"
    expect(bool(probe.devices), f"no device: {reason}")
    _check_devices(probe)
    again = probe_chip(subject.cls, subject.options)
    expect(again.devices == probe.devices, f"a second probe finds {again.devices}")
    there = [d.index for d in probe.devices]
    expect(subject.device in there, f"device {subject.device} is not among those found: {there}")
    expect(isinstance(subject.chip, Chip), "open gives no chip")
    found = ", ".join(f"{d.index}: {d.name}" for d in probe.devices)
    return passed(f"{found}; {_other_device(subject, max(there) + 1)}", devices=len(there))


def _check_devices(probe: Probe) -> None:
    indices = [d.index for d in probe.devices]
    expect(len(set(indices)) == len(indices), f"two devices have one index: {indices}")
    for device in probe.devices:
        right = device.index >= 0 and bool(device.name) and device.memory >= 0
        expect(right, f"{device}: the index and the memory are not negative, the name not empty")


def _other_device(subject: Subject, index: int) -> str:
    """The core never opens a device that the probe does not name; whether `open` would."""
    try:
        chip = subject.cls.open(index, subject.options)
    except (ChipError, ContractError):
        return f"the core and `open` refuse device {index}"
    chip.close()
    return f"the core refuses device {index}, `open` itself does not look at the index"


@judged
def _device(subject: Subject) -> Proof:
    began = time.monotonic()
    limit = CHECK_SECONDS + PATIENCE
    found = within(limit, "check_device", lambda: _checked(subject, CHECK_SECONDS))
    seconds = time.monotonic() - began
    what = f"check_device within {CHECK_SECONDS:g} s"
    expect(found.verdict is Verdict.GOOD, f"{what} says {found.verdict.value}: {found.text}")
    what = f"check_device within {TOO_SHORT:g} s"
    short = within(PATIENCE, what, lambda: _checked(subject, TOO_SHORT))
    text = f"{what} says {short.verdict.value} ({short.text}): its time is not kept"
    expect(short.verdict is Verdict.BAD, f"{text}, or it computes in no child process")
    return passed(f"{found.text}; given a millisecond: {short.text}", seconds=seconds)


def _checked(subject: Subject, timeout: float) -> Finding:
    return check_device(subject.cls, subject.device, timeout, subject.options)


@judged
def _errors(subject: Subject) -> Proof:
    facts = {code: _fact(subject.cls, code) for code in (*CODES, *UNHEARD_OF)}
    for code in UNHEARD_OF:
        text = facts[code].text
        expect(str(code) in text, f"the text of unknown code {code} lacks its number: {text!r}")
    kinds = sorted({fact.kind.value for fact in facts.values()})
    texts = {fact.text for fact in facts.values()}
    return passed(f"{len(facts)} codes give {len(texts)} texts of {', '.join(kinds)}")


def _fact(cls: type[Chip], code: int) -> ErrorFact:
    try:
        fact = cls.map_error(code)
    except Exception as error:
        raise Broken(f"map_error({code}) raises {type(error).__name__}: {error}") from error
    expect(isinstance(fact, ErrorFact), f"map_error({code}) gives {fact!r}, no ErrorFact")
    words = isinstance(fact.layer, ChipLayer) and isinstance(fact.kind, ErrorKind)
    expect(words and isinstance(fact.fatal, bool), f"map_error({code}): unknown words in {fact}")
    expect(bool(fact.text), f"map_error({code}) has no text")
    if fact.kind is ErrorKind.OUT_OF_MEMORY:
        expect(not fact.fatal, f"code {code} is out of memory and fatal: the core can go on")
    if fact.kind is ErrorKind.LOST:
        expect(fact.fatal, f"code {code} is a lost device and not fatal: nothing can go on")
    return fact
