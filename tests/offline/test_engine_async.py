"""`anychip.Engine` inside an event loop: twins, streams side by side, aborts, cancelled tasks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from anychip import Engine
from anychip.engine.messages import StartError
from anychip.offline import CallRefused, EngineClosed, InsideLoop
from served import BUILDER, config_for, wait_until


async def text_of(stream) -> str:
    return "".join([part.text async for part in stream])


def test_twins_answer_as_the_plain_calls_do(engine):
    async def main():
        chat = [{"role": "user", "content": "hi"}]
        face = {"max_tokens": 5}  # a new line begins a smiling face of four bytes
        assert (await engine.async_generate("a", max_tokens=3)).text == "bcd"
        assert [a.text for a in await engine.async_generate(["a"], max_tokens=1)] == ["b"]
        assert (await engine.async_chat(chat, **face)).text == "🙂a"
        assert await text_of(await engine.async_chat(chat, **face, stream=True)) == "🙂a"
        assert await engine.async_detokenize(await engine.async_tokenize("hi")) == "hi"
        with pytest.raises(CallRefused, match="max_tokens is 0"):
            await engine.async_generate("a", max_tokens=0)
        assert await engine.async_abort("nobody") == 0

    asyncio.run(main())


def test_two_streams_overlap_and_one_is_aborted(idle):
    async def main():
        long = await idle.async_generate("0", max_tokens=240, stream=True)
        short = await idle.async_generate("a", max_tokens=20, stream=True)
        seen = []

        async def read(name, stream):
            async for part in stream:
                seen.append(name)
                if part.finish_reason:
                    seen.append((name, part.finish_reason))

        reading = asyncio.create_task(read("long", long))
        await read("short", short)
        assert await idle.async_abort(long.rid) == 1
        await reading
        return seen

    seen = asyncio.run(main())
    assert seen.count("short") == 20 and 5 < seen.count("long") < 240
    first_end = seen.index(("short", "length"))
    assert "long" in seen[: seen.index("short") + 5] and "long" in seen[:first_end]
    assert seen[-1] == ("long", "abort")


@pytest.mark.parametrize("how", ["cancel", "break", "aclose", "with", "end of the loop"])
def test_what_nobody_waits_for_is_aborted(idle, how):
    async def main():
        if how == "cancel":
            task = asyncio.create_task(idle.async_generate("a", max_tokens=250))
            while idle.stats.running == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return None
        stream = await idle.async_generate("a", max_tokens=250, stream=True)
        if how == "with":
            async with stream:
                return await anext(stream)
        async for _ in stream:
            break
        if how == "aclose":
            await stream.aclose()
            assert [part async for part in stream] == []
        return stream if how == "end of the loop" else None

    kept = asyncio.run(main())
    wait_until(lambda: idle.stats.running == 0)
    assert (kept is None) == (how not in ("end of the loop", "with"))


def test_calls_that_wait_are_refused_inside_a_loop(engine):
    async def main():
        for call in (
            lambda: engine.generate("a"),
            lambda: engine.chat([], stream=True),
            lambda: engine.tokenize("a"),
            lambda: engine.abort(),
            lambda: engine.flush_cache(),
            engine.close,
        ):
            with pytest.raises(InsideLoop, match=r"would stop the event loop .*await async_\w+\("):
                call()
        with pytest.raises(InsideLoop, match="use `async with`"), engine:
            pass

    asyncio.run(main())
    assert engine.generate("a", max_tokens=1).text == "b"


def test_an_engine_made_inside_a_loop_starts_while_the_loop_goes_on(folder):
    async def main():
        turns = 0
        engine = Engine(config_for(folder, chip_option={"start_s": "0.3"}), builder=BUILDER)
        with pytest.raises(EngineClosed, match="has not started yet"):
            _ = engine.info
        call = asyncio.create_task(engine.async_generate("a", max_tokens=1))
        while not call.done():
            await asyncio.sleep(0.01)
            turns += 1
        async with engine:
            assert engine.info.model_name == "tiny"
        with pytest.raises(EngineClosed, match="open another"):
            await engine.async_generate("a")
        return turns, await call

    turns, answer = asyncio.run(main())
    assert turns > 10 and answer.text == "b"


def test_a_start_that_fails_inside_a_loop_is_told_by_every_call(folder):
    async def main():
        engine = Engine(config_for(folder, chip_option={"start_error": "no card"}), builder=BUILDER)
        for _ in range(2):
            with pytest.raises(StartError, match="no card"):
                await engine.async_generate("a")
        with pytest.raises(StartError, match="no card"):
            async with engine:
                pass

    asyncio.run(main())


def test_closing_ends_the_calls_that_run(folder):
    async def main():
        engine = Engine(config_for(folder, chip_option={"step_s": "0.01"}), builder=BUILDER)
        stream = await engine.async_generate("a", max_tokens=200, stream=True)
        whole = asyncio.create_task(engine.async_generate("a", max_tokens=200))
        waiting = threading.Thread(target=lambda: errors.append(sync_error(engine)))
        waiting.start()
        while engine.stats.running < 3:
            await asyncio.sleep(0.01)
        await engine.async_close()
        with pytest.raises(EngineClosed, match="was closed"):
            await whole
        with pytest.raises(EngineClosed, match="was closed"):
            await text_of(stream)
        waiting.join(10)

    errors = []
    asyncio.run(main())
    assert [type(error) for error in errors] == [EngineClosed]


def sync_error(engine):
    try:
        return engine.generate("0", max_tokens=200)
    except EngineClosed as error:
        return error


def test_two_loops_use_one_engine(engine):
    texts = []

    def use(prompt: str) -> None:
        async def main():
            stream = await engine.async_generate(prompt, max_tokens=10, stream=True)
            return await text_of(stream)

        texts.append(asyncio.run(main()))

    threads = [threading.Thread(target=use, args=(prompt,)) for prompt in "a0"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(texts) == ["1234567890", "bcdefghijk"]
