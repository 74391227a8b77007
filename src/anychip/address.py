"""The address of a server that a command talks to."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from anychip.flags import ConfigError


def server_url(url: str, flag: str = "--url", key_place: str = "ANYCHIP_API_KEY") -> SplitResult:
    """An address such as http://127.0.0.1:30000, in its parts. ConfigError for what is none.

    key_place: where a key goes that does not belong into the address.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        text = f"{flag}: {url!r} is no address such as http://127.0.0.1:30000 ({error})"
        raise ConfigError(text) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{flag}: {url!r} is no address such as http://127.0.0.1:30000")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"{flag}: leave out user, '?' and '#'; a key goes into {key_place}")
    return parts
