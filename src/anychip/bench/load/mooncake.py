"""The Mooncake project's traces: JSON lines whose prompts are ids of blocks of 512 tokens."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .trace_file import TraceError

BLOCK = 512
"""Tokens of one block in the trace."""


class BlockCall(msgspec.Struct, frozen=True):
    """One request as the trace has it. timestamp: ms. hash_ids: its prompt's blocks in order."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read_blocks(path: Path, most: int | None = None) -> list[BlockCall]:
    """The first `most` requests of a JSON lines file. Raises TraceError, OSError."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    calls = [_call(path, number, line) for number, line in enumerate(lines[:most], 1)]
    for number, call in enumerate(calls, 1):
        if len(call.hash_ids) != -(-call.input_length // BLOCK):
            raise TraceError(
                f"{path}, line {number}: {call.input_length} tokens in {len(call.hash_ids)} "
                f"blocks; blocks of {BLOCK} tokens are needed"
            )
    if not calls:
        raise TraceError(f"{path}: no request in it")
    return calls


def _call(path: Path, number: int, line: str) -> BlockCall:
    try:
        return msgspec.json.decode(line, type=BlockCall)
    except msgspec.MsgspecError as error:
        raise TraceError(f"{path}, line {number}: not a trace of blocks: {error}") from error
