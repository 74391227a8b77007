"""Whether a chip is sound, asked in one way by whoever measures it: speed of a wrong answer means
nothing.

The doctor's looks are taken in a process of their own: what a vendor's library keeps after its
close must not be missing in what is measured, and one that dies there is a finding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from anychip.bench.server_view import ServerInfo
from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.engine.doctor import doctor
from anychip.engine.parent import die_with

LOOPBACK = ("localhost", "127.", "::1")
CHILD_S = 1800.0
"""For the doctor: kernels may have to be built first."""


class NotSound(RuntimeError):
    """The doctor found something red about the chip; the text says what, and the way out."""


def examine(config: ServeConfig, *, model: bool) -> tuple[Finding, ...]:
    """What the doctor finds about the chip, and with `model` about the model on it."""
    question = {**without_keys(config), "model": model}
    try:
        found = run_in_child(f"{__name__}:answer", question, CHILD_S)
    except ChildFailed as error:
        return (Finding("doctor", Verdict.BAD, str(error), "run anychip doctor by itself"),)
    return tuple(msgspec.convert(found, list[Finding]))


def answer(question: Mapping[str, Any]) -> list[Any]:
    """What the child does."""
    die_with(question["parent"])
    config = msgspec.convert(question["config"], ServeConfig)
    return [msgspec.to_builtins(finding) for finding in doctor(config, model=question["model"])]


def without_keys(config: ServeConfig) -> dict[str, Any]:
    """A configuration for a child, with this process' id; no key leaves this process."""
    bare = replace(config, api_key=None, admin_api_key=None, ssl_keyfile_password=None)
    return {"config": msgspec.to_builtins(bare), "parent": os.getpid()}


def chip_of(info: ServerInfo, url: str) -> tuple[ServeConfig | None, str]:
    """The chip that a server runs on, to be opened once more beside it; None and the reason where
    the server is not on this machine."""
    host = urlsplit(url).hostname or ""
    if not host.startswith(LOOPBACK):
        return None, f"the doctor was not asked: {host} is not this machine; run it there"
    config = ServeConfig(
        backend=str(info.config["backend"]),
        device_index=int(info.config["device_index"]),
        chip_option={str(name): str(value) for name, value in info.config["chip_option"].items()},
    )
    return config, ""


def soundness(
    findings: Sequence[Finding], where: str, *, force: bool, done: str
) -> tuple[str, bool]:
    """What the doctor says in one line, and whether it is overridden. where: the device. done:
    what is done all the same with --force, such as `scanned`. Raises NotSound."""
    wrong = [finding for finding in findings if finding.verdict is Verdict.BAD]
    if not wrong:
        return f"doctor: nothing is red on {where}", False
    text = "; ".join(f"{finding.name}: {finding.text}" for finding in wrong)
    if not force:
        raise NotSound(
            f"the doctor finds {where} not sound: {text}. Speed of a wrong answer means nothing;"
            f" next: {wrong[0].step} (with --force it is {done} all the same)"
        )
    return f"doctor: RED on {where}, {done} because of --force: {text}", True
