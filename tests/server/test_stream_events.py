"""What an event of a stream looks like on the wire."""

from __future__ import annotations

import json

from anychip.http.stream import event


def test_no_event_holds_what_clients_take_for_the_end_of_a_line():
    text = "a\x85b\u2028c\u2029d\u00e9\u4f60\x0be"
    sent = event({"text": text})
    assert sent.decode().splitlines() == [sent.decode().strip(), ""]
    assert json.loads(sent.removeprefix(b"data: ")) == {"text": text}
