"""Text to token ids and back: bounded before it begins, and off the event loop where it is long."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from anychip.engine.client import EngineClient
from anychip.http.call_record import stage
from anychip.http.errors import ApiError, bad_request, unavailable
from anychip.server.room import MAX_SEQUENCES, Room
from anychip.server.validation import check_ids
from anychip.text.answer.thinking import left_open, opened_by
from anychip.text.chat import ChatTemplate
from anychip.text.chat_messages import plain_messages
from anychip.text.errors import RendererLost, TemplateError, TextError, require_unicode
from anychip.text.tokenizer import Tokenizer

MAX_TOKENIZE_BYTES = 1 << 20
"""UTF-8 bytes of one /tokenize call; more where the context could hold more."""
MAX_DETOKENIZE_IDS = 1 << 18
"""Token ids of one /detokenize call; more where the context could hold more."""

_SMALL = 2048
"""Characters or ids of one call that are worked on in the event loop: less than a millisecond."""
_THREADS = 4

_T = TypeVar("_T")


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A rendered chat. inside: whether its end opened a thought; None: it says neither."""

    ids: tuple[int, ...]
    inside: bool | None


class Texts:
    """The model's tokenizer and template, for one event loop."""

    def __init__(self, client: EngineClient, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._client = client
        self._tokenizer = tokenizer
        self._template = template
        self._pool = ThreadPoolExecutor(_THREADS, "text")

    @property
    def room(self) -> Room:
        """What a sequence may need."""
        info = self._client.info
        return Room(context_length=info.context_length, cache_tokens=info.cache_tokens)

    def template_reads(self, variable: str) -> bool:
        """Whether the chat template has the word, and so asks for such a variable."""
        return re.search(rf"\b{re.escape(variable)}\b", self._template.text or "") is not None

    async def prompts(
        self, given: Sequence[str | Sequence[int]], param: str
    ) -> list[tuple[int, ...]]:
        """Token ids of prompts, each a text or ids. ApiError 400 for one that cannot run."""

        def work() -> list[tuple[int, ...]]:
            for text in given:
                if isinstance(text, str):
                    self._check_fits(text, param)
            return [self._prompt(one, param) for one in given]

        return await self._do(sum(map(len, given)), work, param)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        continue_final_message: bool = False,
        add_generation_prompt: bool | None = None,
        param: str = "messages",
    ) -> ChatPrompt:
        """A chat up to where the assistant speaks. ApiError 400 as the template."""

        def work() -> ChatPrompt:
            text = self._template.render(
                messages,
                tools=tools,
                continue_final_message=continue_final_message,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
            self._check_fits(text, param)
            ids = self._tokenizer.encode(text, add_special_tokens=False)
            inside = _left_open(messages) if continue_final_message else opened_by(text)
            return ChatPrompt(ids=self._checked(ids, param), inside=inside)

        # The template runs in a process of its own: waiting for it is for a thread.
        return await self._do(_SMALL + 1, work, param)

    async def tokenize(
        self, texts: Sequence[str], param: str, *, special: bool
    ) -> list[tuple[int, ...]]:
        """Token ids of texts that need not fit into the context. ApiError 400."""
        _check_count(len(texts), "texts", param)

        def work() -> list[tuple[int, ...]]:
            self._check_total(texts, param)
            return [self._checked(self._tokenizer.encode(text, special), param) for text in texts]

        return await self._do(sum(map(len, texts)), work, param)

    async def detokenize(
        self, rows: Sequence[Sequence[int]], param: str, *, skip_special: bool
    ) -> list[str]:
        """The text of each list of token ids. ApiError 400."""
        _check_count(len(rows), "lists of ids", param)
        total = sum(map(len, rows))
        self.check_id_count(total, param)

        def work() -> list[str]:
            for row in rows:
                check_ids(row, self._client.info.vocab_size, param)
            return [self._tokenizer.decode(row, skip_special) for row in rows]

        return await self._do(total, work, param)

    def check_id_count(self, count: int, param: str) -> None:
        """ApiError 400 for more token ids than one /detokenize call may bring."""
        most = max(MAX_DETOKENIZE_IDS, self.room.context_length)
        if count > most:
            raise bad_request(f"{param} has {count} entries; at most {most} in one call", param)

    def close(self) -> None:
        """End threads and the template's process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._template.close()
        self._pool.shutdown(wait=True)

    def _prompt(self, given: str | Sequence[int], param: str) -> tuple[int, ...]:
        ids = self._tokenizer.encode(given) if isinstance(given, str) else given
        return self._checked(ids, param)

    def _checked(self, ids: Sequence[int], param: str) -> tuple[int, ...]:
        """The ids as a prompt: some, and of the vocabulary."""
        if not ids:
            raise _empty(param)
        check_ids(ids, self._client.info.vocab_size, param)
        return tuple(ids)

    def _check_fits(self, text: str, param: str) -> None:
        """Refuse what cannot fit, whatever its tokens are, before they are looked for."""
        room = self.room
        size, most = _bytes_of(text, param), self._tokenizer.longest_text(room.longest)
        if size > most:
            raise bad_request(
                f"{param} has {size} bytes; {room.limit} takes at most {most} bytes"
                f" ({self._tokenizer.longest_text(1)} a token)",
                param,
                "context_length_exceeded",
            )

    def _check_total(self, texts: Sequence[str], param: str) -> None:
        most = max(MAX_TOKENIZE_BYTES, self._tokenizer.longest_text(self.room.context_length))
        size = sum(_bytes_of(text, param) for text in texts)
        if size > most:
            raise bad_request(f"{param} has {size} bytes; at most {most} in one call", param)

    async def _do(self, size: int, work: Callable[[], _T], param: str) -> _T:
        """Run `work`, of `size` characters or ids together; ApiError 400 for what it refuses,
        503 where the chat's renderer was lost."""
        try:
            with stage("text"):
                if size <= _SMALL:
                    return work()
                return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RendererLost as error:
            raise unavailable(str(error), "renderer_lost") from error
        except TemplateError as error:
            raise bad_request(str(error), param, "chat_template") from error
        except TextError as error:
            raise bad_request(str(error), param, "bad_text") from error


def _left_open(messages: Sequence[Mapping[str, Any]]) -> bool:
    return left_open(str(plain_messages(messages)[-1]["content"]))


def _bytes_of(text: str, param: str) -> int:
    if not text:
        raise _empty(param)
    require_unicode(text, param)
    return len(text.encode())


def _empty(param: str) -> ApiError:
    return bad_request(f"{param} is empty; send at least one token", param)


def _check_count(count: int, what: str, param: str) -> None:
    if count > MAX_SEQUENCES:
        raise bad_request(f"{param} has {count} {what}; at most {MAX_SEQUENCES} in one call", param)
