"""A look at the engine process while it serves: in a thread of its own, the loop goes on."""

from __future__ import annotations

import threading

from anychip.engine.connection import Connection, PeerGone
from anychip.engine.messages import Look, Looked
from anychip.engine.stacks import sample_process

LOOP, STEPS = "loop", "steps"
"""Purposes of threads: the one that plans and books, and the one that the chip works in."""


class Looking:
    """Answers `Look` commands; one look at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._thread: threading.Thread | None = None
        self._purposes: dict[int, str] = {}

    def runs_the_loop(self) -> None:
        """The calling thread is the one of the loop; the main thread is the chip's."""
        main, own = threading.main_thread().native_id, threading.get_native_id()
        self._purposes = {own: LOOP} if main in (None, own) else {own: LOOP, main: STEPS}

    def begin(self, command: Look) -> None:
        """Start a look; its answer is sent when it is done."""
        if self._thread is not None and self._thread.is_alive():
            self._connection.send(Looked(command.number, None, "another look is under way"))
            return
        self._thread = threading.Thread(
            target=self._look, args=(command,), name="look", daemon=True
        )
        self._thread.start()

    def _look(self, command: Look) -> None:
        try:
            seen = sample_process("engine", command.seconds, command.hertz, self._purposes)
            answer = Looked(command.number, seen)
        except Exception as error:  # noqa: BLE001 (told to who asked: the engine goes on)
            text = f"the engine could not look: {type(error).__name__}: {error}"
            answer = Looked(command.number, None, text)
        try:
            self._connection.send(answer)
        except PeerGone:
            return  # the loop notices on its own
