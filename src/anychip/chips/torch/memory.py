"""What is known of the memory before a device is opened."""

from __future__ import annotations

from anychip.contract.host import host_facts


def host_bytes() -> int:
    """Bytes of the host, 0 where they cannot be read: the probe's default device lives there."""
    try:
        return host_facts().total
    except (OSError, KeyError):
        return 0
