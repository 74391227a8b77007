"""How many files this process may have open: each connection is one."""

from __future__ import annotations

import resource

SPARE = 256
"""For libraries, logs, the engine, and connections on which nothing is asked."""


def make_room(calls: int, connections_a_call: int = 1) -> list[str]:
    """Raise this process's limit of open files so that so many calls can be answered at once.

    A warning where that may not be. Connections beyond the limit would be cut without a word.
    """
    wanted = calls * connections_a_call + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return []
    return [
        f"this process may open {soft:,} files, and {calls:,} calls at once"
        f" (--max-concurrent-requests) take {wanted:,}: connections beyond are cut off; raise the"
        f" limit (ulimit -Hn {wanted}) or lower the flag"
    ]
