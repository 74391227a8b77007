"""What follows grammars: the same interface over whichever library `--grammar-backend` names."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Protocol

from anychip.grammar.limits import GrammarLimits
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LLGUIDANCE, XGRAMMAR = "llguidance", "xgrammar"
_OLDEST, _PAST = (0, 2, 9), (0, 3)
"""Versions of xgrammar: what is taken was read and tried with the first; 0.3 may differ."""
_INSTALL = "pip install 'anychip[xgrammar]'"


class Matcher(Protocol):
    """One sequence against one grammar. Not thread-safe; matchers of one grammar may be used from
    different threads."""

    @property
    def finished(self) -> bool:
        """Nothing may follow but the end: the mask allows end-of-sequence tokens alone."""

    @property
    def may_end(self) -> bool:
        """What was accepted so far is complete: an end-of-sequence token is allowed."""

    def accept(self, token: int) -> bool:
        """Take the next token. False: it breaks the grammar, and nothing has changed."""

    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow, as the model's tokenizer splits them; not accepted yet."""

    def fill(self, words: NDArray[np.int32]) -> None:
        """Write the mask: int32 [ceil(V/32)]; token t is bit t % 32 of word t // 32, set where it
        is allowed. Raises GrammarError where no token is, or the grammar became too complex."""

    def copy(self) -> Matcher:
        """An independent matcher in the same place."""


class Grammar(Protocol):
    """One compiled grammar. Safe to use from several threads.

    bytes: what it keeps. most_bytes: what it may ever keep.
    """

    bytes: int
    most_bytes: int

    def matcher(self) -> Matcher:
        """A matcher at the beginning."""


class Backend(Protocol):
    """A library that follows grammars. Safe to use from several threads.

    tried_tokens: how far the check follows a grammar, since some show what they cost only there.
    """

    tried_tokens: int

    def source(self, spec: GrammarSpec) -> str:
        """The grammar in the library's words. GrammarError for what would not be enforced."""

    def grammar(self, source: str) -> Grammar:
        """Compile what `source` wrote. Raises GrammarError."""

    def complaint(self, spec: GrammarSpec) -> str | None:
        """The JSON pointer of what the library refuses; None where that is not known."""


def backend_complaint(name: str) -> str | None:
    """Why a backend cannot be used here, and the way out; None where it can. Imports nothing."""
    if name != XGRAMMAR:
        return None
    try:
        found = version(XGRAMMAR)
    except PackageNotFoundError:
        return f"xgrammar is not installed; {_INSTALL} (it brings torch), or leave the flag out"
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if _OLDEST <= numbers < _PAST:
        return None
    return f"xgrammar {found} is installed, and 0.2.9 up to below 0.3 is known here; {_INSTALL}"


def open_backend(name: str, vocabulary: Vocabulary, limits: GrammarLimits) -> Backend:
    """The backend for a vocabulary; imports it."""
    if name == XGRAMMAR:
        from anychip.grammar.xgrammar_backend import XgrammarBackend

        return XgrammarBackend(vocabulary, limits)
    from anychip.grammar.llguidance_backend import LlguidanceBackend

    return LlguidanceBackend(vocabulary, limits)
