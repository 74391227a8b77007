"""`@register_chip`, versions, options, empty slots, and the texts of errors."""

from __future__ import annotations

import pytest
from contract_doubles import NullChip

from anychip.contract.errors import (
    ChipError,
    ChipLayer,
    ContractError,
    ErrorFact,
    ErrorKind,
    invalid,
    out_of_memory,
)
from anychip.contract.execution import LaunchLog
from anychip.contract.registration import Option, chip_slots, read_options, register_chip
from anychip.contract.version import CONTRACT

MAJOR, MINOR = CONTRACT
OPTIONS = (
    Option("threads", int, 0, "how many threads"),
    Option("share", float, 0.5, "which share"),
    Option("loud", bool, False, "say more"),
    Option("folder", str, "", "where"),
)


def registered(name="null", contract=CONTRACT, **members):
    return register_chip(name, contract=contract)(type("Some", (NullChip,), members))


def test_name_and_version_end_up_on_the_class():
    chip = registered("some_chip")
    assert (chip.name, chip.contract) == ("some_chip", CONTRACT)


@pytest.mark.parametrize("name", ["", "two words", "7up", "a-b"])
def test_bad_name(name):
    with pytest.raises(ContractError, match="letters, digits"):
        registered(name)


def test_only_chips_can_be_registered():
    with pytest.raises(ContractError, match="derived from Chip"):
        register_chip("null", contract=CONTRACT)(int)


def test_other_major_is_refused_with_both_versions():
    with pytest.raises(ContractError, match=rf"contract {MAJOR + 1}\.0.*{MAJOR}\.{MINOR}"):
        registered(contract=(MAJOR + 1, 0))


def test_newer_minor_is_told_what_the_core_lacks():
    with pytest.raises(ContractError, match=r"lacks: teleport; upgrade") as caught:
        registered(contract=(MAJOR, MINOR + 1), needs=("teleport", "probe"))
    assert "probe" not in str(caught.value)


def test_older_minor_works():
    assert registered(contract=(MAJOR, 0)).contract == (MAJOR, 0)


def test_option_declared_twice():
    with pytest.raises(ContractError, match="twice"):
        registered(options=(OPTIONS[0], OPTIONS[0]))


def test_options_are_parsed_and_the_rest_is_default():
    chip = registered(options=OPTIONS)
    given = {"threads": "3", "loud": "Yes"}
    expected = {"threads": 3, "share": 0.5, "loud": True, "folder": ""}
    assert read_options(chip, given) == expected


def test_unknown_option_names_those_there_are():
    with pytest.raises(ContractError, match=r"no option 'thread'.*folder, loud, share, threads"):
        read_options(registered(options=OPTIONS), {"thread": "1"})
    with pytest.raises(ContractError, match="it has: none"):
        read_options(registered(), {"thread": "1"})


@pytest.mark.parametrize(("name", "text"), [("threads", "1.5"), ("share", "x"), ("loud", "2")])
def test_unreadable_option(name, text):
    with pytest.raises(ContractError, match=f"{name}={text}"):
        read_options(registered(options=OPTIONS), {name: text})


def test_empty_slots_of_an_opened_chip():
    assert set(chip_slots(registered().open(0, {}))) == {
        "telemetry",
        "communicator",
        "capture",
        "memory.copy",
        "memory.traffic",
        "memory.copy_peer",
        "memory.allocate_pinned",
        "memory.host_view",
        "memory.statistics",
        "queue.create",
        "queue.record",
        "queue.wait",
        "build.matrix",
        "build.compile",
        "build.environment",
        "toolchain",
    }


def test_error_says_layer_kind_code_and_what_was_queued():
    fact = ErrorFact(ChipLayer.EXECUTION, ErrorKind.LOST, True, "gone")
    error = ChipError(fact, chip="some", code=719, operators=("linear", "greedy"))
    assert error.fatal
    assert str(error) == (
        "some, execution: device lost: gone (code 719); queued since the last wait: linear, greedy"
    )


def test_typed_errors():
    full, bad = out_of_memory("some", 5000, 70), invalid("some", ChipLayer.MEMORY, "no")
    assert "asked for 5,000 bytes, 70 free" in str(full) and not full.fatal
    assert bad.fact.kind is ErrorKind.INVALID and not bad.fatal and "code" not in str(bad)


def test_launch_log_keeps_the_newest_and_forgets_at_a_wait():
    log = LaunchLog(keep=2)
    for name in "abc":
        log.record(name)
    assert log.unconfirmed == ("b", "c")
    log.confirm()
    assert log.unconfirmed == ()
