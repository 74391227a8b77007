"""Settings of files and of the log, and the test hooks."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class BasicSettings:
    """What every program that serves has: how much it logs, and its file of settings."""

    log_level: str = declared(
        "info",
        Flag(
            ("--log-level",),
            "files and logging",
            "least severe message that is logged",
            "LEVEL",
            choices=("debug", "info", "warning", "error", "critical"),
        ),
    )
    config_file: str | None = declared(
        None, Flag(("--config",), "files and logging", "YAML file with these flags as keys", "FILE")
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSettings(BasicSettings):
    """Where files lie and what is logged of calls."""

    cache_dir: str = declared(
        "~/.cache/anychip",
        Flag(("--cache-dir",), "files and logging", "folder for models and built kernels", "DIR"),
    )
    build_dir: str | None = declared(
        None,
        Flag(
            ("--build-dir",),
            "files and logging",
            "folder for built kernels [CACHE_DIR/build]",
            "DIR",
        ),
    )
    log_requests: bool = declared(
        False,
        Flag(("--log-requests",), "files and logging", "log what calls ask for"),
    )
    log_requests_level: int = declared(
        1,
        Flag(
            ("--log-requests-level",),
            "files and logging",
            "0: counts, 1: sampling too, 2: PROMPTS AND ANSWERS too, cut, 3: whole",
            low=0,
            high=3,
            differs="2",
        ),
    )
    # Test hooks, from the environment alone: retract one request every N steps; miss every prefix.
    force_retract_every: int = declared(
        0, Flag((), "test hooks", "", low=0, env="ANYCHIP_TEST_RETRACT")
    )
    force_radix_miss: bool = declared(
        False, Flag((), "test hooks", "", env="ANYCHIP_RADIX_FORCE_MISS")
    )
