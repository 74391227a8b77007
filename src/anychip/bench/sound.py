"""Whether the chip behind a server is sound: speed of a wrong answer means nothing."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from anychip.bench.server_view import ServerInfo
from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.engine.doctor import doctor

LOOPBACK = ("localhost", "127.", "::1")


def looks(info: ServerInfo, url: str) -> tuple[Sequence[Finding], str]:
    """The doctor's findings about the server's chip, and why there are none, or empty.

    They are made here, so only where the server runs on this machine: the same chip, device and
    options are opened once more beside it, and no model.
    """
    host = urlsplit(url).hostname or ""
    if not host.startswith(LOOPBACK):
        return (), f"the doctor was not asked: {host} is not this machine; run anychip doctor there"
    config = ServeConfig(
        backend=str(info.config["backend"]),
        device_index=int(info.config["device_index"]),
        chip_option={str(name): str(value) for name, value in info.config["chip_option"].items()},
    )
    return tuple(doctor(config, model=False)), ""


def bad(findings: Sequence[Finding]) -> list[Finding]:
    """Those that make speed meaningless."""
    return [finding for finding in findings if finding.verdict is Verdict.BAD]
