"""What every endpoint works with: engine client, tokenizer, template, metrics, running calls."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from anychip.config import ServeConfig
from anychip.engine.client import EngineClient
from anychip.engine.messages import EngineInfo, StartError
from anychip.model.errors import CheckpointError
from anychip.server.errors import ApiError, bad_request, unavailable
from anychip.server.metrics import Metrics
from anychip.server.validation import Room, check_ids
from anychip.text.chat import ChatTemplate
from anychip.text.errors import TemplateError, TextError
from anychip.text.load import open_tokenizer
from anychip.text.tokenizer import Tokenizer

_SMALL_CHARS = 2048
"""Text up to this long is encoded on the event loop: less than a millisecond."""

_THREADS = 4

_T = TypeVar("_T")


class LiveCall(Protocol):
    """A call that is being answered (`generation.Generation`)."""

    rid: str

    def abort(self) -> None:
        """End it; its sequences finish with "abort"."""


class Service:
    """One served model. Belongs to one event loop."""

    def __init__(
        self,
        config: ServeConfig,
        client: EngineClient,
        tokenizer: Tokenizer,
        template: ChatTemplate,
    ) -> None:
        self.config = config
        self.client = client
        self.tokenizer = tokenizer
        self.template = template
        self.live: dict[str, LiveCall] = {}
        self.draining = False
        self.created = int(time.time())
        info: EngineInfo = client.info
        self.model_name = config.served_model_name or info.model_name
        self.metrics = Metrics(self.model_name, lambda: (client.stats, client.deaths, client.ready))
        self._pool = ThreadPoolExecutor(_THREADS, "text")
        self._seeds = random.Random(config.random_seed)
        self._serial = 0

    @property
    def info(self) -> EngineInfo:
        """The engine's facts."""
        return self.client.info

    @property
    def room(self) -> Room:
        """What a sequence may need."""
        info = self.info
        return Room(context_length=info.context_length, cache_tokens=info.cache_tokens)

    def next_seed(self) -> int:
        """A seed for a call that brought none; the row of them follows from --random-seed."""
        return self._seeds.getrandbits(63)

    def next_engine_id(self, rid: str) -> str:
        """An id that no request of this engine ever had, even where a client uses a rid again."""
        self._serial += 1
        return f"{rid}/{self._serial}"

    def check_model(self, name: str | None) -> None:
        """ApiError 404 for a model that is not served. Without a name the served one is meant."""
        known = {None, self.model_name}
        if self.config.served_model_name is None:
            known.add(self.config.model_path)  # what SGLang serves a model as
        if name not in known:
            raise ApiError(
                404,
                f"the model {name!r} does not exist; this server has {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    def check_open(self) -> None:
        """ApiError 503 where no new call is taken."""
        if self.draining:
            raise unavailable("the server is shutting down", "shutting_down")
        if not self.client.ready:
            raise unavailable(self.client.reason, "engine_unavailable")

    @contextmanager
    def registered(self, call: LiveCall) -> Iterator[None]:
        """Hold the call's rid while it runs. ApiError 400 where the rid is in use."""
        self.check_open()
        rid = call.rid
        if rid in self.live:
            raise bad_request(f"rid {rid!r} is in use; choose another", "rid", "duplicate_rid")
        self.live[rid] = call
        try:
            yield
        finally:
            del self.live[rid]

    def abort(self, rid: str) -> bool:
        """End a running call by its exact rid."""
        call = self.live.get(rid)
        if call is not None:
            call.abort()
        return call is not None

    def abort_all(self) -> int:
        """End every running call; how many there were."""
        running = list(self.live.values())
        for call in running:
            call.abort()
        return len(running)

    async def encode(self, text: str, param: str, *, special: bool = True) -> tuple[int, ...]:
        """Token ids of a text. ApiError 400 where it is empty or no valid text."""
        if not text:
            raise bad_request(f"{param} is empty; send at least one token", param)
        ids = await self._text(len(text), self.tokenizer.encode, text, special, param=param)
        return self.check_prompt(ids, param)

    def check_prompt(self, ids: Sequence[int], param: str) -> tuple[int, ...]:
        """The ids as a prompt. ApiError 400 for none, or one outside the vocabulary."""
        if not ids:
            raise bad_request(f"{param} is empty; send at least one token", param)
        check_ids(ids, self.info.vocab_size, param)
        return tuple(ids)

    async def encode_chat(
        self, messages: list[dict[str, Any]], variables: dict[str, Any]
    ) -> tuple[int, ...]:
        """Token ids of a chat, up to where the assistant speaks. ApiError 400 as the template."""

        def work() -> list[int]:
            text = self.template.render(messages, **variables)
            return self.tokenizer.encode(text, add_special_tokens=False)

        # The template runs in a process of its own: waiting for it is for a thread.
        ids = await self._text(_SMALL_CHARS + 1, work, param="messages")
        return self.check_prompt(ids, "messages")

    async def decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """The text of token ids."""
        check_ids(ids, self.info.vocab_size, "tokens")
        return await self._text(len(ids), self.tokenizer.decode, ids, skip_special, param="tokens")

    async def _text(self, size: int, work: Callable[..., _T], *arguments: Any, param: str) -> _T:
        try:
            if size <= _SMALL_CHARS:
                return work(*arguments)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, work, *arguments)
        except TemplateError as error:
            raise bad_request(str(error), param, "chat_template") from error
        except TextError as error:
            raise bad_request(str(error), param, "bad_text") from error

    def close(self) -> None:
        """End threads and the template's process."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.template.close()


def new_rid(prefix: str) -> str:
    """An id for a call that brought none."""
    return f"{prefix}-{uuid.uuid4().hex}"


def open_text(config: ServeConfig) -> tuple[Tokenizer, ChatTemplate]:
    """Tokenizer and chat template of the configured model. StartError says what is wrong."""
    path = config.tokenizer_path or config.model_path
    if path is None:
        raise StartError("--model-path: no model to serve; name a folder or a .gguf file")
    try:
        tokenizer = open_tokenizer(Path(path).expanduser())
        text = _template_text(config, tokenizer)
        template = ChatTemplate(text, tokenizer.special_tokens)
        template.check()
    except CheckpointError as error:
        raise StartError(str(error)) from error
    except TemplateError as error:
        raise StartError(f"--chat-template: {error}") from error
    return tokenizer, template


def _template_text(config: ServeConfig, tokenizer: Tokenizer) -> str | None:
    if config.chat_template is None:
        return tokenizer.chat_template
    try:
        return Path(config.chat_template).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"--chat-template: cannot read {config.chat_template}: {error}") from error
