"""Paths that settings name."""

from __future__ import annotations

from pathlib import Path

from anychip.flags import ConfigError


def user_path(text: str, name: str) -> Path:
    """The path that setting `name` gives, `~` and `~user` as home folders.

    Raises ConfigError where there is no such home: HOME may be unset for a user without a name.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        home = text.partition("/")[0]
        raise ConfigError(
            f"{name}: {text}: the home folder of {home} is not known; give a full path to {name}"
        ) from error
