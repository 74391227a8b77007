"""The process that fetches a model: a hub's client, its threads and its memory end with it.

It reads what is wanted from its input, one JSON line, and answers lines of `messages`. It ends when
its input is closed, so that no download outlives who asked for it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import IO

import msgspec

from anychip.model.errors import CheckpointError
from anychip.model.hub.errors import HubError
from anychip.model.hub.locate import locate
from anychip.model.hub.messages import Event, Failed, Found, SourceName, Wanted
from anychip.model.hub.source import Source

_PACKAGES: dict[SourceName, str] = {
    "huggingface": "pip install huggingface_hub",
    "modelscope": "pip install 'anychip[modelscope]'",
}


def main() -> int:
    """Answer the one question on standard input; 0 where the answer was sent."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a client prints is no answer
    wanted = msgspec.json.decode(sys.stdin.buffer.readline(), type=Wanted)
    threading.Thread(target=_end_with_input, daemon=True).start()
    lock = threading.Lock()

    def tell(event: Event) -> None:
        with lock:
            _write(answers, event)

    try:
        end: Event = Found(str(locate(open_source(wanted), wanted, tell)))
    except CheckpointError as error:
        end = Failed(str(error))
    tell(end)
    return 0


def open_source(wanted: Wanted) -> Source:
    """The hub's client. Raises HubError where its package is not installed."""
    try:
        if wanted.source == "modelscope":
            from anychip.model.hub.modelscope import ModelScope  # noqa: PLC0415 (one of two)

            return ModelScope(wanted)
        from anychip.model.hub.huggingface import HuggingFace  # noqa: PLC0415 (one of two)

        return HuggingFace(wanted)
    except ImportError as error:
        raise HubError(
            f"{wanted.id}: fetching it needs a package that is not here ({error}): "
            f"{_PACKAGES[wanted.source]}, or name a local folder or a .gguf file"
        ) from error


def _write(answers: IO[str], event: Event) -> None:
    answers.write(msgspec.json.encode(event).decode() + "\n")
    answers.flush()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
