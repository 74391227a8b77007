"""What the engine process sends to the server's log."""

from __future__ import annotations

import logging

from anychip.engine.messages import LogLine
from anychip.engine.process import _Forwarder


class Sent(list):
    """Stands for the connection."""

    def send(self, message) -> None:
        self.append(message)


def test_records_travel_without_a_prefix_of_their_own(monkeypatch) -> None:
    sent, root = Sent(), logging.RootLogger(logging.INFO)
    monkeypatch.setattr(logging, "root", root)
    logging.basicConfig(level="INFO", handlers=[_Forwarder(sent)])
    root.warning("step %d failed", 3)
    try:
        raise OSError("the bus is gone")
    except OSError:
        root.exception("it ended")
    line, trace = sent
    assert line == LogLine(logging.WARNING, "step 3 failed", logger="root", when=line.when)
    assert trace.text.startswith("it ended\nTraceback") and "the bus is gone" in trace.text
