"""What a terminal shows while a model is loaded."""

from __future__ import annotations

import pytest
from typed import Typed

from anychip.model.tiny import write_tiny


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_a_terminal_shows_how_much_is_loaded(command, tmp_path):
    """In this process, and from an engine's process; chat, which logs warnings alone, too."""
    model = write_tiny(tmp_path, context=64, layers=40)
    more = ("--prompt", "a", "--max-tokens", "1") if command == "generate" else ()
    words = ("-m", "anychip", command, "--model-path", str(model), "--backend", "fake", *more)
    with Typed(*words) as typed:
        seen = typed.until("MiB/s")
    assert "  weights [" in seen and "] " in seen and " MiB, " in seen
