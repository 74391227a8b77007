"""Settings of recording requests and of answering recorded ones again."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared

_GROUP = "record and replay"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSettings:
    """What is kept of the requests that were answered."""

    record: str | None = declared(
        None,
        Flag(("--record",), _GROUP, "write each request and its answer to this file", "FILE"),
    )
    record_privacy: str = declared(
        "tokens",
        Flag(
            ("--record-privacy",),
            _GROUP,
            "what the record holds of prompts and answers; lengths: no content",
            "LEVEL",
            choices=("text", "tokens", "lengths"),
        ),
    )
    record_max_bytes: int = declared(
        2**30,
        Flag(
            ("--record-max-bytes",),
            _GROUP,
            "a longer record becomes FILE.1 and a new one begins",
            low=4096,
            high=2**50,
        ),
    )
    record_keep: int = declared(
        4,
        Flag(("--record-keep",), _GROUP, "older parts of the record that stay", low=0, high=1000),
    )
    allow_exact_replay: bool = declared(
        False,
        Flag(
            ("--allow-exact-replay",),
            _GROUP,
            "requests may name the tokens that are produced (emit_token_ids)",
        ),
    )
