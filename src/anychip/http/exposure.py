"""What whoever listens shows to others, for a loud word at its start."""

from __future__ import annotations

from anychip.http.listening import is_loopback


def open_to_all(host: str, locked: bool) -> list[str]:
    """A warning where other machines reach it without a key. locked: whether clients need one."""
    if locked or is_loopback(host):
        return []
    return [
        f"LISTENING ON {host} WITHOUT A KEY: whoever reaches this machine can use the"
        " model and read the answers' metrics; set --api-key (ANYCHIP_API_KEY), or --host"
        " 127.0.0.1"
    ]
