"""How ranks meet before they have collectives: rank 0 hands some bytes to each other one.

The address is `tcp://host:port`; rank 0 listens there. What is handed over is no secret.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from urllib.parse import urlsplit

RETRY = 0.05
"""Seconds between two tries while rank 0 does not listen yet."""
PATIENCE = 2.0
"""Seconds that a visitor has to say which rank it is."""


def hand_out(rank: int, world: int, address: str, content: bytes, seconds: float) -> bytes:
    """Rank 0's `content`, on every rank; that of the others only tells its length.

    Raises TimeoutError where not all ranks have come within `seconds`, ConnectionError where
    rank 0 sends this one away, ValueError for another kind of address.
    """
    place = urlsplit(address)
    if place.scheme != "tcp" or not place.hostname or not place.port:
        raise ValueError(f"ranks meet at tcp://host:port, not at '{address}'")
    where, end = (place.hostname, place.port), time.monotonic() + seconds
    if rank == 0:
        _give(where, end, world, content)
        return content
    return _fetch(where, end, struct.pack("!II", rank, world), len(content))


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.001)


def _give(where: tuple[str, int], end: float, world: int, content: bytes) -> None:
    missing = set(range(1, world))
    with socket.create_server(where) as door:
        while missing:
            door.settimeout(_left(end))
            try:
                visitor, _ = door.accept()
            except TimeoutError:
                names = ", ".join(map(str, sorted(missing)))
                raise TimeoutError(f"no sign of rank {names} of {world}") from None
            # One that is silent or gone is none of ours: a rank that was wanted stays missing.
            with visitor, suppress(OSError):
                visitor.settimeout(PATIENCE)
                said = visitor.recv(8, socket.MSG_WAITALL)
                rank, of = struct.unpack("!II", said) if len(said) == 8 else (0, 0)
                if of == world and rank in missing:
                    visitor.sendall(content)
                    missing.remove(rank)


def _fetch(where: tuple[str, int], end: float, who: bytes, length: int) -> bytes:
    while True:
        try:
            with socket.create_connection(where, _left(end)) as door:
                door.sendall(who)
                content = door.recv(length, socket.MSG_WAITALL)
            break
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise TimeoutError("rank 0 does not listen") from None
            time.sleep(RETRY)
    if len(content) != length:
        raise ConnectionError("rank 0 has this rank already, or counts other ranks")
    return content
