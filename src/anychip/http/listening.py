"""The address that the server listens on, taken before anything slow is started."""

from __future__ import annotations

import errno
import ipaddress
import socket

from anychip.engine.messages import StartError

_REASONS = {
    errno.EADDRINUSE: "is in use; stop what listens there, or choose another --port",
    errno.EACCES: "may not be used by this user; choose a --port over 1023",
    errno.EADDRNOTAVAIL: "is no address of this machine; choose another --host",
}


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine itself."""
    bare = host.strip("[]").rstrip(".").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


STALLED_S = 60
"""How long a client may take nothing of what is sent before the connection is cut."""


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address. StartError where that cannot be, with the way out.

    It does not listen yet: until the model is loaded, connections are refused, as a TCP probe
    expects. port: 0 for any free one.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise StartError(f"--host: {host!r} is no address: {error.strerror}") from error
    taken = socket.socket(family, kind, protocol)
    # A restart must not wait for connections of the run before to time out.
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted connections inherit it
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * STALLED_S)
    try:
        taken.bind(address)
        taken.setblocking(False)
    except OSError as error:
        taken.close()
        raise refused(f"{host}:{port}", error) from error
    return taken


def refused(address: str, error: OSError) -> StartError:
    """What the system's refusal of an address means for the user."""
    reason = _REASONS.get(error.errno or 0, f"cannot be used: {error.strerror}")
    flag = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
    return StartError(f"{flag}: {address} {reason}")


def url_of(listening: socket.socket, secure: bool = False) -> str:
    """Where a client on this machine reaches it."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
