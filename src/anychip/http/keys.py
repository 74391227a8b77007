"""Which keys open the server, and to whom."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hmac import compare_digest

import msgspec

from anychip.engine.messages import StartError
from anychip.settings import HttpSettings, user_path

MAX_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Whose key a request brought. tenant: the key's name in the file, None for other keys."""

    tenant: str | None = None
    admin: bool = False


class Access:
    """The keys of a server. Without --api-key and --api-key-file everybody may ask.

    named: tenant → key.
    """

    def __init__(
        self, api_key: str | None, admin_key: str | None, named: Mapping[str, str]
    ) -> None:
        self.needed = bool(api_key or named)
        self.admin_open = not (admin_key or named)
        """Whether admin actions need no key: nobody else's calls could be meant."""
        self._keys = [(Caller(tenant=name), key) for name, key in named.items()]
        if api_key:
            self._keys.append((Caller(), api_key))
        if admin_key:
            self._keys.append((Caller(admin=True), admin_key))

    def caller(self, given: str) -> Caller | None:
        """Whose key this is; None where it is none. given: as Starlette decodes headers.

        It takes the same time whether and where the key is found.
        """
        found = None
        for caller, key in self._keys:
            if compare_digest(given.encode("latin-1"), key.encode()):
                found = caller
        return found


def open_access(config: HttpSettings) -> Access:
    """The configured keys. StartError for a file that cannot be read, or that others can."""
    named = _read(config.api_key_file) if config.api_key_file else {}
    for flag, key in (("--api-key", config.api_key), ("--admin-api-key", config.admin_api_key)):
        for name, other in named.items():
            if key == other:
                raise _wrong(config.api_key_file, f"the key of {name} is that of {flag} too")
    return Access(config.api_key, config.admin_api_key, named)


def _read(path: str) -> dict[str, str]:
    named: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or not words[1].isprintable():
            raise _wrong(
                path, f"line {number} is not 'NAME KEY' (a name has letters, digits, '.', '_', '-')"
            )
        name, key = words
        if name in named:
            raise _wrong(path, f"line {number}: {name} is there twice")
        if key in named.values():
            raise _wrong(path, f"line {number}: the key of {name} is another's too")
        named[name] = key
    if not named:
        raise _wrong(path, "it has no key; write lines 'NAME KEY'")
    return named


def _text(path: str) -> str:
    try:
        with user_path(path, "--api-key-file").open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _wrong(path, f"it cannot be read: {error.strerror}") from error
    if mode & 0o077:
        raise _wrong(path, f"others may open it (mode {mode & 0o777:04o}); chmod 600 {path}")
    if len(data) > MAX_FILE_BYTES:
        raise _wrong(path, f"it is longer than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _wrong(path, "it is not UTF-8") from error


def _wrong(path: str | None, text: str) -> StartError:
    return StartError(f"--api-key-file: {path}: {text}")
