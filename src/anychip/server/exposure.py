"""What a server shows to others, for a loud word at its start."""

from __future__ import annotations

from anychip.config import ServeConfig
from anychip.http.exposure import open_to_all

SHOWS_TEXTS = 2
"""The first --log-requests-level that shows prompts and answers."""


def exposures(config: ServeConfig, locked: bool) -> list[str]:
    """Warnings. locked: whether clients need a key."""
    told = open_to_all(config.host, locked)
    if config.log_requests and config.log_requests_level >= SHOWS_TEXTS:
        told.append(
            f"THE LOG SHOWS PROMPTS AND ANSWERS (--log-requests-level {config.log_requests_level}):"
            " whoever reads the log reads what users write; 0 and 1 show none of it"
        )
    if config.record and config.record_privacy != "lengths":
        told.append(
            f"THE RECORD HOLDS PROMPTS AND ANSWERS ({config.record}, --record-privacy"
            f" {config.record_privacy}): whoever reads it reads what users write; `lengths` keeps"
            " none of it"
        )
    if config.allow_exact_replay:
        told.append(
            "ANSWERS CAN BE DICTATED (--allow-exact-replay): a request may name the tokens that it"
            " is answered with; leave it out where answers are to be trusted"
        )
    return told
