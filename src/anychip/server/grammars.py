"""Whether a grammar can be served, found out before any state exists."""

from __future__ import annotations

from functools import cached_property

import msgspec

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.grammar.check import GrammarCheck
from anychip.grammar.errors import GrammarError
from anychip.grammar.vocabulary import vocabulary_of
from anychip.server.grammar_fields import GrammarWish, refused
from anychip.server.sampling import Sampling
from anychip.text.tokenizer import Tokenizer


class Grammars:
    """The model's vocabulary against which grammars are checked; nothing is opened before one
    comes."""

    def __init__(self, config: ServeConfig, client: EngineClient, tokenizer: Tokenizer) -> None:
        self._config, self._client, self._tokenizer = config, client, tokenizer

    async def settled(self, sampling: Sampling) -> Sampling:
        """The settings with their grammar as the engine takes it. ApiError 400 where it cannot be
        served. The compile ends with the call that wanted it."""
        wish = sampling.grammar
        if wish is None:
            return sampling
        if self._config.constrained_json_disable_any_whitespace:
            spec = msgspec.structs.replace(wish.spec, any_whitespace=False)
            wish = GrammarWish(spec=spec, field=wish.field)
        await self.check(wish)
        return msgspec.structs.replace(sampling, grammar=wish)

    async def check(self, wish: GrammarWish) -> None:
        """ApiError 400 where the grammar cannot be served."""
        if self._config.grammar_backend == "none":
            raise refused(wish, "this server runs with --grammar-backend none", None)
        try:
            await self._check.check_async(wish.spec)
        except GrammarError as error:
            raise refused(wish, error.text, error.pointer) from error

    def close(self) -> None:
        """End the process that checks."""
        if "_check" in self.__dict__:
            self._check.close()

    @cached_property
    def _check(self) -> GrammarCheck:
        vocabulary = vocabulary_of(self._tokenizer, self._client.info.vocab_size)
        return GrammarCheck(vocabulary, backend=self._config.grammar_backend)
