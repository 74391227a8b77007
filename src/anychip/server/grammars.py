"""Whether a grammar can be served, found out before any state exists."""

from __future__ import annotations

import asyncio
from functools import cached_property

import msgspec

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.grammar.check import GrammarCheck
from anychip.grammar.errors import GrammarError, NotChecked
from anychip.grammar.vocabulary import vocabulary_of
from anychip.http.call_record import stage
from anychip.http.errors import unavailable
from anychip.server.grammar_fields import GrammarWish, refused
from anychip.server.sampling import Sampling
from anychip.text.tokenizer import Tokenizer


class Grammars:
    """The model's vocabulary against which grammars are checked; nothing is opened before one
    comes. Checks run one after the other, so calls wait here too, and under the same limits."""

    def __init__(self, config: ServeConfig, client: EngineClient, tokenizer: Tokenizer) -> None:
        self._config, self._client, self._tokenizer = config, client, tokenizer
        self._waiting = 0

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
        """ApiError 400 where the grammar cannot be served, 503 where too many calls wait for
        their check, this one has waited for too long, or the process that checks was killed."""
        if self._config.grammar_backend == "none":
            raise refused(wish, "this server runs with --grammar-backend none", None)
        most, patience_s = self._config.max_queued_requests, self._config.waiting_timeout
        if most is not None and self._waiting > most:
            text = f"{self._waiting} grammars wait to be checked, the limit is {most}; try later"
            raise unavailable(text, "queue_full")
        self._waiting += 1
        try:
            with stage("grammar check"):
                await asyncio.wait_for(self._check.check_async(wish.spec), patience_s)
        except NotChecked as error:
            raise unavailable(f"{wish.field}: {error.text}", "grammar_not_checked") from error
        except GrammarError as error:
            raise refused(wish, error.text, error.pointer) from error
        except asyncio.TimeoutError as error:
            text = f"the grammar waited longer than {patience_s:g} s to be checked; try later"
            raise unavailable(text, "queue_timeout") from error
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the process that checks."""
        if "_check" in self.__dict__:
            self._check.close()

    @cached_property
    def _check(self) -> GrammarCheck:
        vocabulary = vocabulary_of(self._tokenizer, self._client.info.vocab_size)
        return GrammarCheck(vocabulary, backend=self._config.grammar_backend)
