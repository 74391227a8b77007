"""One sequence against one grammar: which tokens may come next, and which must."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from anychip.grammar.errors import GrammarError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORCED_BYTES = 4096
"""Of a forced text that are split into tokens at once."""
UNSURE = 8
"""Last tokens of a text that was cut: with what follows they might be split otherwise."""
_SPECIAL = 0xFF
"""Begins the name of a special token in forced bytes; no UTF-8 has it."""
_TOO_COMPLEX = ("LexerTooComplex", "ParserTooComplex")
_FULL = "too many states"


class Source(Protocol):
    """Where a matcher comes from, and gets a fresh parser from where its own has grown too big."""

    eos_ids: tuple[int, ...]
    words: int

    def parser(self, worn: Any | None) -> Any:
        """A parser at the beginning of the grammar, that shares no states with `worn`."""

    def split(self, text: bytes) -> list[int]:
        """Tokens that write `text`."""


class LlguidanceMatcher:
    """Not thread-safe; matchers of one grammar may be used from different threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._root: Any = None
        self._root = source.parser(None)
        self._parser = self._root.deep_copy()
        self._taken: list[int] = []
        self._ended = False

    @property
    def finished(self) -> bool:
        """Nothing may follow but the end: the mask allows end-of-sequence tokens alone."""
        return self._ended or bool(self._parser.is_stopped())

    @property
    def may_end(self) -> bool:
        """What was accepted so far is complete: an end-of-sequence token is allowed."""
        return self._ended or bool(self._parser.is_accepting())

    def accept(self, token: int) -> bool:
        """Take the next token. False: it breaks the grammar, and nothing has changed.

        An end-of-sequence token is taken where the grammar may end. Raises GrammarError where the
        grammar has become too complex to go on.
        """
        if token in self._source.eos_ids:
            return self._take_end(token)
        if self._ended or not self._take(token):
            return False
        self._taken.append(token)
        return True

    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow, as the model's tokenizer splits them; not accepted yet. Of a
        long text the beginning alone: to split all of it would take as long as a step."""
        if self.finished:
            return ()
        text = self._parser.compute_ff_bytes()
        if len(text) <= FORCED_BYTES or _SPECIAL in text[:FORCED_BYTES]:
            found = self._parser.compute_ff_tokens()
        else:
            found = self._source.split(beginning(text))[:-UNSURE]
        return tuple(t for t in found if t not in self._source.eos_ids)

    def fill(self, words: NDArray[np.int32]) -> None:
        """Write the mask: int32 [ceil(V/32)]; token t is bit t % 32 of word t // 32, set where it
        is allowed. Raises GrammarError where the grammar has become too complex to go on."""
        check_words(words, self._source.words)
        if self.finished:
            fill_ends(words, self._source.eos_ids)
            return
        self._compute(words)
        if self._parser.is_error():
            self._renew()
            self._compute(words)
            self._refuse_error()
        if not words.any():
            raise GrammarError("the grammar leads to a place where no token fits")

    def copy(self) -> LlguidanceMatcher:
        """An independent matcher in the same place."""
        other = object.__new__(LlguidanceMatcher)
        other._source = self._source
        other._root = self._root
        other._parser = self._parser.deep_copy()
        other._taken = list(self._taken)
        other._ended = self._ended
        return other

    def _compute(self, words: NDArray[np.int32]) -> None:
        self._parser.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)

    def _take_end(self, token: int) -> bool:
        """An end-of-sequence token, which a grammar may also ask for as a part of its own."""
        if not self.may_end:
            trial = self._parser.deep_copy()
            if not trial.consume_token(token):
                return False
            self._parser = trial
        self._ended = True
        return True

    def _take(self, token: int) -> bool:
        """One token into the parser, which stays as it was where the token is refused."""
        if self._parser.try_consume_tokens([token]) == 1:
            return True
        if not self._parser.is_error():
            return False
        if self._is_worn():
            self._renew()
            return bool(self._parser.try_consume_tokens([token]) == 1)
        self._refuse_error()
        return False

    def _renew(self) -> None:
        """Go on with a parser whose lexer has forgotten its states.

        All matchers of a grammar share the states that its lexer has met, up to a limit; where
        that is reached the way out is a new one, fed with the tokens so far.
        """
        if not self._is_worn():
            self._refuse_error()
        self._root = self._source.parser(self._root)
        self._parser = self._root.deep_copy()
        if self._parser.try_consume_tokens(self._taken) != len(self._taken):
            self._refuse_error()

    def _is_worn(self) -> bool:
        """Whether the error is one of size."""
        parser = self._parser
        return parser.stop_reason() in _TOO_COMPLEX or _FULL in str(parser.get_error())

    def _refuse_error(self) -> None:
        if not self._parser.is_error():
            return
        if self._is_worn():
            raise GrammarError(f"the grammar has become too complex: {plain(self._parser)}")
        reason = plain(self._parser)
        why = "" if reason.startswith("NoExtension") else f": {reason}"
        raise GrammarError(f"no text fits the grammar{why}")


def beginning(text: bytes) -> bytes:
    """As much of a forced text as is split at once: no character is cut."""
    if len(text) <= FORCED_BYTES:
        return text
    end = FORCED_BYTES
    while text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]


def check_words(words: NDArray[np.int32], count: int) -> None:
    """ValueError for what is no mask of `count` words."""
    if words.dtype != np.int32 or words.shape != (count,):
        raise ValueError(f"a mask is int32 [{count}], not {words.dtype} {list(words.shape)}")
    if not words.flags.c_contiguous:
        raise ValueError("a mask must be contiguous")


def fill_ends(words: NDArray[np.int32], eos_ids: tuple[int, ...]) -> None:
    """A mask that allows these tokens alone."""
    words[:] = 0
    bits = words.view(np.uint32)
    for token in eos_ids:
        bits[token // 32] |= np.uint32(1 << (token % 32))


_NOISE = (
    re.compile(r"<(?:state|backtrace|non-verbose)\b.*", re.DOTALL),
    re.compile(r"^at \d+\(\d+\): invalid regex .*?\(in regex\): ", re.DOTALL),
    re.compile(r"\s1 \| start: .*", re.DOTALL),
    re.compile(r"regex parse error:.*?error: ", re.DOTALL),
)


def plain(parser: Any) -> str:
    """What a parser complains about, in one short line, without its inner state."""
    text = str(parser.get_error())
    for noise in _NOISE:
        text = noise.sub("", text)
    text = " ".join(text.split())[:300]
    return text.replace("panic:", "the library failed on it:")
