"""Fingerprints of the operators' signatures; the lock file pins them to a contract version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.signature import Signature
from anychip.contract.version import CONTRACT, dotted

LOCK_FILE = Path(__file__).with_name("operators.lock")


def fingerprint(signature: Signature) -> str:
    """The first 16 hex digits of SHA-256 over the signature's canonical text."""
    return hashlib.sha256(signature.canonical.encode()).hexdigest()[:16]


def fingerprints() -> dict[str, str]:
    """Operator -> fingerprint, for the whole catalogue."""
    return {name: fingerprint(s) for name, s in sorted(CATALOGUE.items())}


def lock_text() -> str:
    """What the lock file must hold."""
    return json.dumps({"contract": dotted(CONTRACT), "operators": fingerprints()}, indent=1) + "\n"


def drift() -> list[str]:
    """Differences between the catalogue and the lock file; empty when there is none."""
    locked = json.loads(LOCK_FILE.read_text())
    now = json.loads(lock_text())
    names = sorted(set(locked["operators"]) | set(now["operators"]))
    changed = [n for n in names if locked["operators"].get(n) != now["operators"].get(n)]
    problems = [f"operator '{n}' differs from the lock file" for n in changed]
    if locked["contract"] != now["contract"]:
        problems.append(
            f"the lock file is for contract {locked['contract']}, the code is {now['contract']}"
        )
    return problems
