"""Opening a tokenizer takes much for a moment: it comes first, and the rest goes back."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from anychip import heap
from anychip.contract.host import resident

PIECE, PIECES = 4096, 10_000


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_memory_between_pieces_in_use_goes_back_to_the_system() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    pieces = [library.malloc(PIECE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, PIECE)
    for piece in pieces[:-1]:  # the last one keeps the end of the heap where it is
        library.free(piece)
    before = resident()
    heap.trim()
    assert before - resident() > PIECE * PIECES // 2
    library.free(pieces[-1])


def test_a_library_that_cannot_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    heap.trim()


def test_texts_are_opened_before_http_is_imported() -> None:
    program = "import sys, anychip.server.opening_texts; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    imported = set(run.stdout.decode().split())
    assert "tokenizers" in imported
    assert not imported & {"uvicorn", "starlette", "prometheus_client", "jinja2"}
