"""`anychip.Engine`: what a server does, as calls of a Python program.

`anychip.engine.offline.OfflineEngine` is another thing: scheduler and runner in the caller's own
process, one call at a time, for `anychip generate`, tests and benches.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar, overload

from anychip.config import ConfigError, ServeConfig, from_keywords
from anychip.engine.client import DEFAULT_BUILDER
from anychip.engine.messages import EngineInfo
from anychip.offline import calls
from anychip.offline.answers import Answer
from anychip.offline.errors import EngineClosed, InsideLoop
from anychip.offline.streams import AsyncStream, Stream
from anychip.offline.thread import EngineThread, outcome
from anychip.plan import SchedulerStats
from anychip.run.local_model import local_model

_T = TypeVar("_T")

Messages = list[dict[str, Any]]
_One = str | list[int]
_Several = list[str] | list[list[int]]
_Params = dict[str, Any]


class Engine:
    """A model, served to this program alone: the server's engine process, scheduler and protocols.

    settings: the flags of `anychip serve`, "_" for "-", as `Engine(model_path="model.gguf")`; the
    demo model without one. Environment variables and a `config` file count as they do there.

    `generate` and `chat` take the fields of the HTTP endpoints as keywords and check them as those
    do; errors are CallRefused and CallFailed with the endpoints' texts. Any number of threads and
    event loops may call at once. Inside a running event loop await the `async_` twins; the plain
    ones would stop the loop and raise InsideLoop.

    Made outside an event loop, it is ready (else ConfigError, StartError); made inside one it
    starts while the loop goes on, and the first call, or `async with`, waits for it. `close` ends
    process and thread, as do both kinds of `with`, the end of the program, and its being collected.
    A fork of this process cannot use it (EngineClosed); multiprocessing's method 'spawn' is safe.
    """

    def __init__(
        self,
        config: ServeConfig | str | None = None,
        /,
        *,
        builder: str = DEFAULT_BUILDER,
        **settings: object,
    ) -> None:
        """config: in place of settings; a text is the `model_path`. builder: "module:function"
        that builds the engine."""
        if isinstance(config, str):
            settings, config = {"model_path": config, **settings}, None
        if config is not None and settings:
            raise ConfigError("Engine: give a ServeConfig or keywords, not both")
        config = config or from_keywords(settings, "Engine")
        self._thread = EngineThread(local_model(config), builder)
        weakref.finalize(self, self._thread.close)
        if _inside_loop():
            return
        try:
            outcome(self._thread.opened)
        except BaseException:
            self._thread.close()
            raise

    @property
    def info(self) -> EngineInfo:
        """What it serves: model, chip, vocabulary, limits. EngineClosed while it starts."""
        if not self._thread.opened.done():
            raise EngineClosed("the Engine has not started yet; await a call first")
        return self._thread.opened.result().info

    @property
    def stats(self) -> SchedulerStats:
        """The scheduler's counters after the last step."""
        if not self._thread.opened.done():
            return SchedulerStats()
        return self._thread.opened.result().client.stats

    @overload
    def generate(
        self,
        prompt: _One | None = None,
        sampling_params: _Params | None = None,
        input_ids: list[int] | None = None,
        *,
        stream: Literal[False] = False,
        **params: Any,
    ) -> Answer: ...
    @overload
    def generate(
        self,
        prompt: _Several,
        sampling_params: _Params | None = None,
        *,
        stream: Literal[False] = False,
        **params: Any,
    ) -> list[Answer]: ...
    @overload
    def generate(
        self,
        prompt: None = None,
        sampling_params: _Params | None = None,
        *,
        input_ids: list[list[int]],
        stream: Literal[False] = False,
        **params: Any,
    ) -> list[Answer]: ...
    @overload
    def generate(
        self,
        prompt: _One | _Several | None = None,
        sampling_params: _Params | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        *,
        stream: Literal[True],
        **params: Any,
    ) -> Stream: ...
    def generate(
        self,
        prompt: _One | _Several | None = None,
        sampling_params: _Params | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        *,
        stream: bool = False,
        **params: Any,
    ) -> Answer | list[Answer] | Stream:
        """Continue one prompt, a text or ids, or a list of prompts.

        With sampling_params the call is one of /generate (SGLang's names: max_new_tokens, ...),
        otherwise one of /v1/completions; params are further fields of it. Returns an Answer for
        one prompt, a list for a list, a Stream of parts with stream.
        """
        body = {"sampling_params": sampling_params, "stream": stream, **params}
        if stream:
            begun = self._wait(calls.begin_generate, prompt, input_ids, body)
            return Stream(self._thread, begun, self)
        answers = self._wait(calls.generate, prompt, input_ids, body)
        return answers[0] if calls.is_single(prompt, input_ids) else answers

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[False] = False, **params: Any
    ) -> Answer: ...
    @overload
    def chat(self, messages: Messages, *, stream: Literal[True], **params: Any) -> Stream: ...
    def chat(self, messages: Messages, *, stream: bool = False, **params: Any) -> Answer | Stream:
        """Answer a chat; params are further fields of /v1/chat/completions."""
        body = {"stream": stream, **params}
        if stream:
            begun = self._wait(calls.begin_chat, messages, body)
            return Stream(self._thread, begun, self)
        return self._wait(calls.chat, messages, body)

    @overload
    async def async_generate(
        self,
        prompt: _One | None = None,
        sampling_params: _Params | None = None,
        input_ids: list[int] | None = None,
        *,
        stream: Literal[False] = False,
        **params: Any,
    ) -> Answer: ...
    @overload
    async def async_generate(
        self,
        prompt: _Several,
        sampling_params: _Params | None = None,
        *,
        stream: Literal[False] = False,
        **params: Any,
    ) -> list[Answer]: ...
    @overload
    async def async_generate(
        self,
        prompt: None = None,
        sampling_params: _Params | None = None,
        *,
        input_ids: list[list[int]],
        stream: Literal[False] = False,
        **params: Any,
    ) -> list[Answer]: ...
    @overload
    async def async_generate(
        self,
        prompt: _One | _Several | None = None,
        sampling_params: _Params | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        *,
        stream: Literal[True],
        **params: Any,
    ) -> AsyncStream: ...
    async def async_generate(
        self,
        prompt: _One | _Several | None = None,
        sampling_params: _Params | None = None,
        input_ids: list[int] | list[list[int]] | None = None,
        *,
        stream: bool = False,
        **params: Any,
    ) -> Answer | list[Answer] | AsyncStream:
        """`generate` for an event loop: the Answers, or an AsyncStream of parts with stream."""
        body = {"sampling_params": sampling_params, "stream": stream, **params}
        if stream:
            begun = await self._done(calls.begin_generate, prompt, input_ids, body)
            return AsyncStream(self._thread, begun, self)
        answers = await self._done(calls.generate, prompt, input_ids, body)
        return answers[0] if calls.is_single(prompt, input_ids) else answers

    @overload
    async def async_chat(
        self, messages: Messages, *, stream: Literal[False] = False, **params: Any
    ) -> Answer: ...
    @overload
    async def async_chat(
        self, messages: Messages, *, stream: Literal[True], **params: Any
    ) -> AsyncStream: ...
    async def async_chat(
        self, messages: Messages, *, stream: bool = False, **params: Any
    ) -> Answer | AsyncStream:
        """`chat` for an event loop."""
        body = {"stream": stream, **params}
        if stream:
            begun = await self._done(calls.begin_chat, messages, body)
            return AsyncStream(self._thread, begun, self)
        return await self._done(calls.chat, messages, body)

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        return self._wait(calls.tokenize, text, add_special_tokens)

    def detokenize(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        return self._wait(calls.detokenize, token_ids, skip_special_tokens)

    def abort(self, rid: str | None = None) -> int:
        """End the running call of that id, or all of them; how many were ended.

        What it generated so far is its answer, with finish_reason "abort".
        """
        return self._wait(calls.abort, rid)

    def flush_cache(self) -> None:
        """Empty the prefix cache. CallRefused while calls run."""
        self._wait(calls.flush_cache)

    def close(self) -> None:
        """End what runs, the engine process and the thread, and wait for that; again: nothing."""
        self._refuse_inside_loop("close")
        self._thread.close()

    async def async_tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """`tokenize` for an event loop."""
        return await self._done(calls.tokenize, text, add_special_tokens)

    async def async_detokenize(self, token_ids: list[int], skip_special_tokens: bool = True) -> str:
        """`detokenize` for an event loop."""
        return await self._done(calls.detokenize, token_ids, skip_special_tokens)

    async def async_abort(self, rid: str | None = None) -> int:
        """`abort` for an event loop."""
        return await self._done(calls.abort, rid)

    async def async_flush_cache(self) -> None:
        """`flush_cache` for an event loop."""
        await self._done(calls.flush_cache)

    async def async_close(self) -> None:
        """`close` for an event loop."""
        await asyncio.to_thread(self._thread.close)

    def __enter__(self) -> Engine:
        self._refuse_inside_loop("__enter__")
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Engine:
        await self._done(calls.nothing)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.async_close()

    def _wait(self, work: Callable[..., Coroutine[Any, Any, _T]], *arguments: object) -> _T:
        """Run a call in the thread and wait; one that is interrupted is given up."""
        self._refuse_inside_loop(work.__name__.removeprefix("begin_"))
        future = self._thread.submit(work, *arguments)
        try:
            return outcome(future)
        finally:
            future.cancel()

    async def _done(self, work: Callable[..., Coroutine[Any, Any, _T]], *arguments: object) -> _T:
        """The same for the loop of the caller."""
        return await asyncio.wrap_future(self._thread.submit(work, *arguments))

    def _refuse_inside_loop(self, name: str) -> None:
        if _inside_loop():
            twin = f"async_{name.strip('_')}()"
            way = "use `async with`" if name == "__enter__" else f"await {twin}"
            raise InsideLoop(f"{name}() would stop the event loop that runs in this thread; {way}")


def _inside_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
