"""What the pytest plugin does once a test asks for it: lists checks, runs them, sums them up.

The checks run in pytest's own process, in the order of the kit: a chip that crashes takes pytest
with it. `anychip conform` isolates them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from anychip.config import read_config
from anychip.conform.chosen import fingerprint_of_subject, subject_of
from anychip.conform.kit import LEVELS, InProcess
from anychip.conform.proof import Level, Proof, Status, failed, inconclusive
from anychip.conform.result import CannotList, Listed
from anychip.conform.selection import Selection, levels_of
from anychip.conform.subject import Subject
from anychip.contract.errors import ContractError
from anychip.flags import ConfigError
from anychip.run.fingerprint import fingerprint_id

PROPERTY = "anychip"
"""Name of the user property that each item carries: [status, key, text, fingerprint id]."""

NO_BACKEND = (
    'which chip? Set anychip_backend = "NAME" under [tool.pytest.ini_options] in pyproject.toml, '
    "or give --anychip-backend NAME; `anychip chips` lists the installed ones"
)


@dataclass
class Session:
    """The chip of this pytest run, its checks, and the gates that failed so far."""

    subject: Subject
    prover: InProcess
    items: list[tuple[Listed, str]]
    fingerprint: str
    failed_gates: list[Listed] = field(default_factory=list)


SESSION = pytest.StashKey[Session]()


def parametrize(metafunc: pytest.Metafunc, fixture: str) -> None:
    """Give the test one item for each check. Raises CollectError for a setting that is wrong."""
    session = _session(metafunc.config)
    runs: list[Callable[[pytest.Item], None]] = [
        partial(_run, session, check, error) for check, error in session.items
    ]
    names = ["-".join((c.level.value, *c.key.split())) for c, _ in session.items]
    metafunc.parametrize(fixture, runs, ids=names, indirect=True)


def _session(config: pytest.Config) -> Session:
    if SESSION not in config.stash:
        try:
            config.stash[SESSION] = _open(config)
        except (ConfigError, ContractError) as error:
            # Its text alone is shown: where it was raised tells a vendor nothing.
            raise pytest.Collector.CollectError(f"{PROPERTY}: {error}") from error
    return config.stash[SESSION]


def _open(config: pytest.Config) -> Session:
    backend = _setting(config, "--anychip-backend", "anychip_backend")
    if not backend:
        raise ConfigError(NO_BACKEND)
    flags = ["--backend", backend]
    flags += ["--device-index", _setting(config, "--anychip-device", "anychip_device")]
    for option in _setting(config, "--anychip-option", "anychip_options"):
        flags += ["--chip-option", option]
    serve = read_config(flags)
    selection = Selection(levels_of(_setting(config, "--anychip-level", "anychip_levels")))
    subject = subject_of(serve)
    fingerprint = fingerprint_id(fingerprint_of_subject(subject, serve.chip_option))
    prover = InProcess(subject, LEVELS)
    return Session(subject, prover, _items(prover, selection), fingerprint)


def _setting(config: pytest.Config, flag: str, key: str) -> Any:
    given = config.getoption(flag)
    return config.getini(key) if given is None else given


def _items(prover: InProcess, selection: Selection) -> list[tuple[Listed, str]]:
    """Checks in order; a level that cannot be listed is one item with the reason, and the last."""
    items: list[tuple[Listed, str]] = []
    for level in filter(selection.lists, Level):
        try:
            items += [(check, "") for check in prover.checks(level) if selection.takes(check)]
        except CannotList as error:
            return [*items, (Listed("list", level), str(error))]
    return items


def _run(session: Session, check: Listed, error: str, item: pytest.Item) -> None:
    proof = failed(error) if error else _prove(session, check)
    if check.gate and proof.status is Status.FAIL:
        session.failed_gates.append(check)
    text = f"{check.key}: {proof.text}"
    item.user_properties.append(
        (PROPERTY, [proof.status.value, check.key, proof.text, session.fingerprint])
    )
    if proof.status in (Status.FAIL, Status.MISSING):
        pytest.fail(f"{proof.status.value} {text}", pytrace=False)
    if proof.status is Status.UNSUPPORTED:
        pytest.skip(f"UNSUPPORTED {text}")
    if proof.status is Status.INCONCLUSIVE:
        pytest.xfail(f"INCONCLUSIVE {text}")
        pytest.fail(f"INCONCLUSIVE {text}", pytrace=False)  # with --runxfail we come here


def _prove(session: Session, check: Listed) -> Proof:
    order = list(Level)
    for gate in session.failed_gates:
        if order.index(gate.level) < order.index(check.level):
            return inconclusive(f"not run: {gate.key} failed")
    return session.prover.prove(check)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts, what is inconclusive in full, and the fingerprint's id."""
    seen = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if not seen:
        return
    counts = Counter(status for status, *_ in seen)
    terminalreporter.section("conformance")
    for status, key, text, _ in seen:
        if status == Status.INCONCLUSIVE.value:
            terminalreporter.write_line(f"INCONCLUSIVE {key}: {text}")
    told = ", ".join(f"{counts[s.value]} {s.value}" for s in Status if counts[s.value])
    terminalreporter.write_line(f"{told}; fingerprint {seen[0][3]}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the chip."""
    if SESSION in config.stash:
        config.stash[SESSION].subject.close()
