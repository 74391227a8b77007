"""What travels between the kit and the process that runs its checks."""

from __future__ import annotations

from typing import Any

import msgspec

from anychip.config import ServeConfig
from anychip.conform.proof import Level, Proof
from anychip.conform.result import Listed


class Start(msgspec.Struct, frozen=True):
    """The first message. levels: `module:NAME` of a mapping as `kit.LEVELS` is."""

    config: ServeConfig
    levels: str


class AskChecks(msgspec.Struct, tag=True, frozen=True):
    """List the checks of a level."""

    level: Level


class AskProof(msgspec.Struct, tag=True, frozen=True):
    """Run a check."""

    check: Listed


class AskFingerprint(msgspec.Struct, tag=True, frozen=True):
    """Tell chip, device, versions and host."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The chip is imported, it has the options and the device."""


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The user asks for what is not there."""

    text: str


class Broken(msgspec.Struct, tag=True, frozen=True):
    """The chip cannot be looked at: it does not import, has no device, or its probe raises."""

    text: str


class Checks(msgspec.Struct, tag=True, frozen=True):
    """The checks of a level; none where `error` says why they cannot be listed."""

    checks: list[Listed]
    error: str = ""


class Proved(msgspec.Struct, tag=True, frozen=True):
    """What a check gave."""

    proof: Proof


class Fingerprint(msgspec.Struct, tag=True, frozen=True):
    """See run/fingerprint.py."""

    record: dict[str, Any]


Question = AskChecks | AskProof | AskFingerprint
Answer = Ready | Refused | Broken | Checks | Proved | Fingerprint
