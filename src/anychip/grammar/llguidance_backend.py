"""Grammars by llguidance: compiled to parsers that matchers copy."""

from __future__ import annotations

import threading
from typing import Any

import llguidance

from anychip.grammar.errors import GrammarError
from anychip.grammar.json_schema import json_source, llguidance_complaint
from anychip.grammar.json_text import read_json
from anychip.grammar.limits import GrammarLimits
from anychip.grammar.matcher import LlguidanceMatcher, plain
from anychip.grammar.translate import translate
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec

_STATE_BYTES = 1024
"""Measured, rounded up: what the lexer keeps for one state that it has met."""
_TEXT_FACTOR = 384
"""Measured, rounded up: bytes that a compiled grammar takes for one byte of its source."""


class LlguidanceGrammar:
    """One compiled grammar. Safe to use from several threads.

    bytes: an upper bound of what it keeps; the states of its lexer from its first matcher on.
    most_bytes: of what it may ever keep.
    """

    def __init__(self, tokens: Any, source: str, vocabulary: Vocabulary, states: int) -> None:
        self.eos_ids = vocabulary.eos_ids
        self.words = vocabulary.words
        self.bytes = _TEXT_FACTOR * len(source)
        self.most_bytes = self.bytes + _STATE_BYTES * states
        self._tokens = tokens
        self._source = source
        self._limits = llguidance.LLParserLimits(max_lexer_states=states, verbose_errors=False)
        self._lock = threading.Lock()
        self._fresh = self._compile()

    def matcher(self) -> LlguidanceMatcher:
        """A matcher at the beginning."""
        self.bytes = self.most_bytes
        return LlguidanceMatcher(self)

    def parser(self, worn: Any | None) -> Any:
        """The parser that matchers copy; compiled anew where it is the one that is worn out."""
        with self._lock:
            if worn is self._fresh:
                self._fresh = self._compile()
            return self._fresh

    def split(self, text: bytes) -> list[int]:
        """Tokens that write `text`, as the model's tokenizer splits it."""
        return list(self._tokens.tokenize_bytes(text))

    def _compile(self) -> Any:
        parser = llguidance.LLMatcher(self._tokens, self._source, log_level=0, limits=self._limits)
        if parser.is_error():
            raise GrammarError(plain(parser))
        return parser


class LlguidanceBackend:
    """Compiles for one vocabulary; a compile does not hold Python's lock."""

    tried_tokens = 1

    def __init__(self, vocabulary: Vocabulary, limits: GrammarLimits) -> None:
        self._vocabulary, self._limits = vocabulary, limits
        self._tokens = tokens_for(vocabulary)

    def source(self, spec: GrammarSpec) -> str:
        """The grammar in llguidance's words. GrammarError, with a pointer where it has one."""
        return translate(spec, self._vocabulary, self._limits)

    def grammar(self, source: str) -> LlguidanceGrammar:
        """Compile what `source` wrote. Raises GrammarError."""
        return LlguidanceGrammar(self._tokens, source, self._vocabulary, self._limits.lexer_states)

    def complaint(self, spec: GrammarSpec) -> str | None:
        """The JSON pointer of what llguidance refuses in a schema; None where it is not known."""
        if spec.kind != "json_schema":
            return None
        schema = read_json(spec.text, "the schema", self._limits)
        return llguidance_complaint(json_source(schema, True))


class _Tokens:
    """A vocabulary as llguidance asks for it."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        padding = [b""] * (vocabulary.size - len(vocabulary.pieces))
        self.tokens = [*vocabulary.pieces, *padding]
        self.special_token_ids = sorted(vocabulary.special.values())
        self.eos_token_id = vocabulary.eos_ids[0]
        self._vocabulary = vocabulary

    def __call__(self, text: str | bytes) -> list[int]:
        spelled = text if isinstance(text, bytes) else text.encode("utf-8")
        return self._vocabulary.tokens_of(spelled)


def tokens_for(vocabulary: Vocabulary) -> Any:
    """llguidance's tokenizer: a trie of the vocabulary, built once."""
    return llguidance.LLTokenizer(_Tokens(vocabulary), eos_token=list(vocabulary.eos_ids))
