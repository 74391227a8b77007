"""Grammars by xgrammar, which brings torch with it: imported where `--grammar-backend` names it."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xgrammar

from anychip.grammar.ebnf_writer import quoted, written
from anychip.grammar.errors import GrammarError
from anychip.grammar.json_schema import find_complaint
from anychip.grammar.json_text import read_json
from anychip.grammar.limits import GrammarLimits, check_size
from anychip.grammar.matcher import FORCED_BYTES, UNSURE, beginning, check_words, fill_ends
from anychip.grammar.regex_reader import read_regex
from anychip.grammar.translate import choices_of
from anychip.grammar.vocabulary import Vocabulary
from anychip.grammar.xgrammar_json import converted, json_rules, plain
from anychip.grammar.xgrammar_schema import prepare
from anychip.grammar.xgrammar_tags import XgrammarTags, ebnf_rules
from anychip.request import GrammarSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NO_TEXT = b"\xff"
"""No UTF-8 holds it."""


class XgrammarBackend:
    """Compiles for one vocabulary, in the calling thread; that does not hold Python's lock."""

    tried_tokens = 24

    def __init__(self, vocabulary: Vocabulary, limits: GrammarLimits) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._pieces = Pieces(vocabulary)
        info = xgrammar.TokenizerInfo(
            _generated(vocabulary),
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=list(vocabulary.eos_ids),
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def source(self, spec: GrammarSpec) -> str:
        """The grammar in xgrammar's EBNF. GrammarError, with a pointer where it has one."""
        check_size(spec, self._limits)
        if spec.kind == "json_schema":
            return json_rules(read_json(spec.text, "the schema", self._limits), spec.any_whitespace)
        if spec.kind == "json_object":
            return json_rules({"type": "object"}, spec.any_whitespace)
        if spec.kind == "regex":
            return f"root ::= {written(read_regex(spec.text))}\n"
        if spec.kind == "ebnf":
            return ebnf_rules(spec.text, self._limits.depth, "")
        return self._other(spec)

    def _other(self, spec: GrammarSpec) -> str:
        if spec.kind == "choice":
            return f"root ::= {' | '.join(map(quoted, choices_of(spec, self._limits)))}\n"
        if spec.kind == "structural_tag":
            value = read_json(spec.text, "the structural tag", self._limits)
            return XgrammarTags(self._vocabulary, self._limits, spec.any_whitespace).whole(value)
        raise GrammarError(
            f"a {spec.kind} grammar is llguidance's, and this server runs with --grammar-backend "
            "xgrammar; use ebnf"
        )

    def grammar(self, source: str) -> XgrammarGrammar:
        """Compile what `source` wrote. Raises GrammarError."""
        try:
            compiled = self._compiler.compile_grammar(xgrammar.Grammar.from_ebnf(source))
        except RuntimeError as error:
            raise GrammarError(plain(error)) from error
        return XgrammarGrammar(compiled, len(source), self._pieces, self._limits.step_s)

    def complaint(self, spec: GrammarSpec) -> str | None:
        """The JSON pointer of what xgrammar refuses in a schema; None where that is not known."""
        if spec.kind != "json_schema":
            return None
        schema = prepare(read_json(spec.text, "the schema", self._limits)).schema
        return find_complaint(schema, _refuses)


def _refuses(schema: dict[str, Any]) -> bool:
    try:
        converted(schema, True)
    except GrammarError:
        return True
    return False


def _generated(vocabulary: Vocabulary) -> list[bytes]:
    """The bytes of each token as text; of special ones and of NUL some that are never text, so that
    they come where a grammar names the token, and nowhere else."""
    special = set(vocabulary.special.values())
    return [
        _NO_TEXT + piece if token in special or b"\0" in piece else piece
        for token, piece in enumerate(vocabulary.pieces)
    ]


class Pieces:
    """Splits a text that must follow into tokens, up to where one could still grow longer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def certain(self, text: bytes, unsure: int = 0) -> tuple[int, ...]:
        """The tokens of the text without those whose bytes may belong to a longer token, nor the
        last `unsure` ones. They end with a character: xgrammar goes on from there alone."""
        tokens = self.vocabulary.tokens_of(text)
        at = whole = 0
        for count, token in enumerate(tokens[: len(tokens) - unsure]):
            if self._begins(text[at:]):
                break
            at += len(self.vocabulary.pieces[token])
            if text[at : at + 1] < b"\x80" or text[at : at + 1] >= b"\xc0":
                whole = count + 1
        return tuple(tokens[:whole])

    def _begins(self, text: bytes) -> bool:
        """Whether a token begins with all of the text and goes on."""
        found = bisect.bisect_right(self._sorted, text)
        return found < len(self._sorted) and self._sorted[found].startswith(text)

    @cached_property
    def _sorted(self) -> list[bytes]:
        return sorted(_generated(self.vocabulary))


class XgrammarGrammar:
    """One compiled grammar. Safe to use from several threads.

    bytes, most_bytes: what it keeps, as xgrammar counts.
    """

    def __init__(self, compiled: Any, source_bytes: int, pieces: Pieces, step_s: float) -> None:
        self.bytes = self.most_bytes = int(compiled.memory_size_bytes) + source_bytes
        self.pieces = pieces
        self.step_s = step_s
        self._compiled = compiled

    def matcher(self) -> XgrammarMatcher:
        """A matcher at the beginning."""
        return XgrammarMatcher(self, xgrammar.GrammarMatcher(self._compiled))


class XgrammarMatcher:
    """The same as `matcher.LlguidanceMatcher`, which see. Not thread-safe.

    xgrammar keeps all readings of a text, however many: where a call has become too slow, the next
    would be slower, and GrammarError ends the request.
    """

    def __init__(self, grammar: XgrammarGrammar, state: Any, ended: bool = False) -> None:
        self._grammar = grammar
        self._vocabulary = grammar.pieces.vocabulary
        self._state = state
        self._ended = ended

    @property
    def finished(self) -> bool:
        """Nothing may follow but the end: the mask allows end-of-sequence tokens alone."""
        if self._ended or not self._state.is_completed():
            return self._ended
        words, ends = (np.zeros(self._vocabulary.words, np.int32) for _ in range(2))
        self._compute(words)
        fill_ends(ends, self._vocabulary.eos_ids)
        return bool(np.array_equal(words, ends))

    @property
    def may_end(self) -> bool:
        """What was accepted so far is complete: an end-of-sequence token is allowed."""
        return self._ended or bool(self._state.is_completed())

    def accept(self, token: int) -> bool:
        """Take the next token. False: it breaks the grammar, and nothing has changed. Raises
        GrammarError where the grammar has become too complex to go on."""
        if self._ended or not 0 <= token < len(self._vocabulary.pieces):
            return False
        is_end = token in self._vocabulary.eos_ids
        taken = (is_end and self.may_end) or bool(
            self._timed(lambda: self._state.accept_token(token))
        )
        self._ended = is_end and taken
        return taken

    def forced(self) -> tuple[int, ...]:
        """Tokens that must follow, as the model's tokenizer splits them; not accepted yet. Of a
        long text the beginning alone."""
        if self.may_end:
            return ()
        text = self._timed(self._state.find_jump_forward_string).encode("utf-8")
        unsure = UNSURE if len(text) > FORCED_BYTES else 0
        return self._grammar.pieces.certain(beginning(text), unsure) if text else ()

    def fill(self, words: NDArray[np.int32]) -> None:
        """Write the mask: int32 [ceil(V/32)]; token t is bit t % 32 of word t // 32, set where it
        is allowed. GrammarError where none is, or the grammar has become too complex to go on."""
        check_words(words, self._vocabulary.words)
        if self._ended:
            fill_ends(words, self._vocabulary.eos_ids)
            return
        self._compute(words)
        if not words.any():
            raise GrammarError("the grammar leads to a place where no token fits")

    def copy(self) -> XgrammarMatcher:
        """An independent matcher in the same place."""
        return XgrammarMatcher(self._grammar, self._state.fork(), self._ended)

    def _compute(self, words: NDArray[np.int32]) -> None:
        self._timed(lambda: self._state.fill_next_token_bitmask(words))
        past = self._vocabulary.size % 32
        if past:  # xgrammar also sets bits past the vocabulary
            words.view(np.uint32)[-1] &= np.uint32((1 << past) - 1)

    def _timed(self, call: Callable[[], Any]) -> Any:
        start = time.thread_time()
        found = call()
        if time.thread_time() - start > self._grammar.step_s:
            raise GrammarError(
                f"the grammar has become too complex: one token took xgrammar more than "
                f"{self._grammar.step_s:g} s (fewer ways to read one text make it faster)"
            )
        return found
