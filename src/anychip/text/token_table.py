"""What each token id writes, as bytes: the one table behind decoding and streaming."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass

SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class TokenTable:
    """`pieces[id]` are the bytes that token `id` adds to the output; UTF-8 only once joined.

    special: ids of special tokens, which an answer does not show unless it is asked to.
    strip_space: one leading space of a whole text is the tokenizer's own, not the writer's.
    """

    pieces: tuple[bytes, ...]
    special: frozenset[int]
    strip_space: bool = False

    def piece(self, token_id: int) -> bytes:
        """The bytes of one token, a special one included; none for an id outside the table."""
        return self.pieces[token_id] if 0 <= token_id < len(self.pieces) else b""

    def write(self, token_ids: Iterable[int], hidden: Set[int]) -> bytes:
        """The bytes of the tokens that are not hidden. An id outside the table writes nothing: a
        model's vocabulary may be padded past its tokenizer's."""
        pieces, written = self.pieces, []
        for token_id in token_ids:
            if token_id not in hidden and 0 <= token_id < len(pieces):
                written.append(pieces[token_id])
        return b"".join(written)


def byte_alphabet() -> dict[str, int]:
    """The byte-level BPE alphabet of GPT-2: printable Latin-1 bytes are written as themselves,
    the other 68 as U+0100 and following, in byte order. Returns character -> byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


def byte_level_piece(token: str, alphabet: dict[str, int]) -> bytes:
    """The bytes of a byte-level BPE token; one not spelled in the alphabet stands for itself."""
    try:
        return bytes(map(alphabet.__getitem__, token))
    except KeyError:
        return token.encode("utf-8")


def sentencepiece_piece(token: str) -> bytes:
    """The bytes of a SentencePiece token: `<0x0A>` is one byte, the space mark is a space."""
    byte = _BYTE_TOKEN.fullmatch(token)
    if byte:
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE_MARK, " ").encode("utf-8")
