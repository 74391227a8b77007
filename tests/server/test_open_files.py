"""As many connections as calls may be answered: the limit of open files follows, or is told."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from served import ENVIRONMENT, server_process

CHILD = """
import resource, sys
from anychip.http.descriptors import make_room
soft, hard, calls = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
told = make_room(calls, connections_a_call=2)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], *told)
"""


@pytest.mark.parametrize(
    ("soft", "hard", "calls", "after", "told"),
    [
        (256, 1024, 200, 656, ""),
        (1000, 1024, 200, 1000, ""),
        (256, 600, 200, 600, " this process may open 600 files, and 200 calls at once"),
    ],
)
def test_the_limit_is_raised_as_far_as_it_may_be(soft, hard, calls, after, told):
    words = [sys.executable, "-c", CHILD, *map(str, (soft, hard, calls))]
    shown = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith(f"{after}{told}")
    assert ("take 656" in shown.stdout and "ulimit -Hn 656" in shown.stdout) == bool(told)


def test_a_server_answers_beside_more_connections_than_it_started_with_room_for(folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))  # the server inherits it
        with (
            server_process(folder, "--max-concurrent-requests", "64") as (_, url),
            ExitStack() as held,
        ):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            address = urlsplit(url)
            ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for _ in range(200):
                one = socket.create_connection((address.hostname, address.port))
                held.callback(one.close)
                one.settimeout(30)
                one.sendall(ask)
                assert one.recv(4096).startswith(b"HTTP/1.1 200 ")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
