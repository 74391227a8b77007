"""What a server shows to others, for a loud word at its start."""

from __future__ import annotations

from anychip.config import ServeConfig
from anychip.server.listening import is_loopback

SHOWS_TEXTS = 2
"""The first --log-requests-level that shows prompts and answers."""


def exposures(config: ServeConfig, locked: bool) -> list[str]:
    """Warnings. locked: whether clients need a key."""
    told = []
    if not (locked or is_loopback(config.host)):
        told.append(
            f"LISTENING ON {config.host} WITHOUT A KEY: whoever reaches this machine can use the"
            " model and read the answers' metrics; set --api-key (ANYCHIP_API_KEY), or --host"
            " 127.0.0.1"
        )
    if config.log_requests and config.log_requests_level >= SHOWS_TEXTS:
        told.append(
            f"THE LOG SHOWS PROMPTS AND ANSWERS (--log-requests-level {config.log_requests_level}):"
            " whoever reads the log reads what users write; 0 and 1 show none of it"
        )
    return told
