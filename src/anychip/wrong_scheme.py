"""Why a server could not be asked: http for https or the other way, or nobody is there."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import SplitResult

PROBE_S = 3.0
"""How long the server may take to answer the other way."""

NOBODY = "nothing listens there"

_LIBRARY = re.compile(r" ssl:\S+ \[(.*)\]$")
"""What aiohttp adds to an address that it cannot reach: its own setting, and the reason."""


def told(url: SplitResult, error: BaseException, flag: str = "--url") -> str:
    """What went wrong in words: the scheme or the certificate with the way out, else the error's
    own. The server is asked once more to know; takes PROBE_S at most a try, so call it off an event
    loop. Raises nothing."""
    text = _scheme(url, error, flag) or plain(error)
    way_out = f"; start a server there, or give another {flag}"
    return text + way_out if text.endswith(NOBODY) else text


def plain(error: BaseException) -> str:
    """An error in words on one line, without what only aiohttp's own readers understand."""
    text = " ".join(str(error).split()) or type(error).__name__
    found = _LIBRARY.search(text)
    if found is None:
        return NOBODY if isinstance(error, ConnectionRefusedError) else text
    return f"{text[: found.start()]}: {_reason(error, found[1])}"


def _reason(error: BaseException, said: str) -> str:
    numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", said)}  # one an address
    numbers |= {one.errno for one in _chain(error) if isinstance(one, OSError) and one.errno}
    if numbers == {errno.ECONNREFUSED}:
        return NOBODY
    known = [number for number in numbers if number in errno.errorcode]
    return os.strerror(known[0]) if len(known) == 1 else said


def _scheme(url: SplitResult, error: BaseException, flag: str) -> str:
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    if url.scheme == "http":
        if _refused(error) or not _speaks_tls(host, port):
            return ""
        return f"this server speaks https, not http: {flag} https://{url.netloc}{url.path}"
    wrong = [one for one in _chain(error) if isinstance(one, ssl.SSLError)]
    untrusted = [one for one in wrong if isinstance(one, ssl.SSLCertVerificationError)]
    if untrusted:
        # aiohttp's own are of that kind too, and have not what ssl's have.
        return (
            f"its certificate is not trusted: {getattr(untrusted[-1], 'verify_message', error)};"
            " where it is your own, start this command with SSL_CERT_FILE=FILE, the certificate or"
            " that of its authority"
        )
    alerted = any("ALERT" in (getattr(one, "reason", None) or "") for one in wrong)
    if not wrong or alerted or not _speaks_http(host, port):
        return ""
    return f"this server speaks http, not https: {flag} http://{url.netloc}{url.path}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it was made of; aiohttp keeps the first in `os_error`."""
    while error is not None:
        yield error
        error = getattr(error, "os_error", None) or error.__cause__


def _refused(error: BaseException) -> bool:
    """Whether nobody listens there, or nobody knows the place."""
    return any(isinstance(one, (ConnectionRefusedError, socket.gaierror)) for one in _chain(error))


def _speaks_tls(host: str, port: int) -> bool:
    """Whatever its certificate says: nothing but a greeting is sent."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), PROBE_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except (OSError, ValueError):  # ValueError: a name that no certificate can have
        return False


def _speaks_http(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), PROBE_S) as plain:
            plain.sendall(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return plain.recv(5) == b"HTTP/"
    except OSError:
        return False
