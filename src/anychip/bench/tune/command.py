"""A configuration as the words of a command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from anychip.config import ServeConfig
from anychip.flags import settings_of

_LEFT_OUT_GROUPS = ("record and replay", "logs and traces")
_LEFT_OUT = (
    "host",
    "port",
    "api_key_file",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_ca_certs",
    "config_file",
    "log_level",
    "log_requests",
    "log_requests_level",
)
"""How servers listen, who may ask and what they write: not what tune decides."""


def words_of(config: ServeConfig) -> tuple[str, ...]:
    """What differs from the defaults, whether it came from flags, the environment or a file."""
    defaults = {item.name: item.default for item in dataclasses.fields(ServeConfig)}
    words: list[str] = []
    for setting in settings_of(ServeConfig):
        value = getattr(config, setting.field)
        flag = setting.flag
        if flag.secret or flag.group in _LEFT_OUT_GROUPS or setting.field in _LEFT_OUT:
            continue
        if not flag.names:  # test hooks
            continue
        name = flag.names[0]
        if setting.repeated:
            words += [word for pair in value.items() for word in (name, "=".join(pair))]
        elif value != defaults[setting.field]:
            words += [name] if value is True else [name, str(value)]
    return tuple(words)


def replaced(words: Sequence[str], changes: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The words with changed flags: each stands once, where it stood or at the end."""
    found = list(words)
    for flag, value in changes:
        if flag not in found:
            found += [flag, value]
            continue
        place = found.index(flag) + 1
        bare = place == len(found) or found[place].startswith("--")
        found[place : place + (not bare)] = [value]
    return tuple(found)
