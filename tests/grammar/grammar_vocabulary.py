"""A small vocabulary like a model's, and walks over the tokens that a mask allows."""

from __future__ import annotations

import numpy as np

from anychip.grammar.vocabulary import Vocabulary

_JSON = (
    """{" ": ":" "," ", " "} "] [" [{ }, }} ]] [] {} }] true false null \\n \\" :: // -0 .5 e+"""
)
_WORDS = """the and name na me hello world 12 345 00 20 日本 é ü ß 🙂 key value type ab abc aa bb
 a1 @ http .com 2024 -01 T1 :3 Z" id items"""
EOS, EOT, CALL, CALLED = "<eos>", "<eot>", "<call>", "<called>"


def small_vocabulary() -> Vocabulary:
    """Each byte, pieces of JSON and of words, two half characters, two ends and two tags."""
    single = [bytes([value]) for value in range(256)]
    more = sorted({piece.encode() for piece in f"{_JSON} {_WORDS}".split()} - set(single))
    pieces = [*single, *more, "日".encode()[:2], "🙂".encode()[:3], b" ", b" the", b"  "]
    special = {name: len(pieces) + at for at, name in enumerate((EOS, EOT, CALL, CALLED))}
    pieces += [name.encode() for name in special]
    eos = (special[EOS], special[EOT])
    return Vocabulary(tuple(pieces), special, eos, len(pieces) + 5)


def allowed(matcher, vocabulary) -> np.ndarray:
    """The ids that the mask allows."""
    words = np.zeros(vocabulary.words, np.int32)
    matcher.fill(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert not bits[len(vocabulary.pieces) :].any()
    return np.flatnonzero(bits)


_CLOSING = (b"}", b"]", b'"', b"null", b"n", b":", b",")
_IN_TEXT = (b'"', b"@", b":")


def walk(matcher, vocabulary, rng, budget: int = 40, closing=()) -> bytes:
    """A text out of tokens that the mask allows; past `budget` tokens it hurries to the end, by
    the pieces of `closing`, where it is empty by those that end JSON."""
    out = b""
    for count in range(1500):
        ids = allowed(matcher, vocabulary)
        token = _choose(ids, vocabulary, rng, hurry=count >= budget, closing=closing)
        assert matcher.accept(token), (out, vocabulary.pieces[token])
        if token in vocabulary.eos_ids:
            assert matcher.finished
            return out
        out += b"" if token in vocabulary.special.values() else vocabulary.pieces[token]
    raise AssertionError(f"no end: {out[-200:]!r}")


def _choose(ids, vocabulary, rng, *, hurry: bool, closing) -> int:
    ends = [token for token in ids if token in vocabulary.eos_ids]
    if ends and (hurry or rng.random() < 0.15):
        return int(rng.choice(ends))
    rest = [int(token) for token in ids if token not in vocabulary.eos_ids]
    by_piece = {vocabulary.pieces[token]: token for token in rest}
    if hurry:
        for piece in closing or (_IN_TEXT if b"z" in by_piece else _CLOSING):
            if piece in by_piece:
                return by_piece[piece]
        rest = [by_piece[piece] for piece in by_piece if piece.isalnum()] or rest
    return rng.choice(rest or ends)


def takes(grammar, vocabulary, text: str, *names: str) -> bool:
    """Whether a text, byte by byte, is one that the grammar accepts. names: special tokens that
    are read as such where the text spells them."""
    matcher = grammar.matcher()
    at, raw = 0, text.encode()
    while at < len(raw):
        name = next((one for one in names if raw.startswith(one.encode(), at)), None)
        token = vocabulary.special[name] if name else raw[at]
        if not matcher.accept(token):
            return False
        at += len(name.encode()) if name else 1
    return matcher.may_end
