from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from anychip.engine.client import EngineClient, EngineUnavailable
from anychip.engine.messages import StartError
from anychip.engine.supervisor import EngineState, RestartPolicy
from anychip.engine.suspects import RequestSuspected
from anychip.request import FinishReason, Request, SamplingParams
from anychip.schedule.refusal import QueueFull, RequestRefused
from scripted_engine import BUG, FAIL, FATAL, HANG, KILL
from served import BUILDER, alive, config_for

FAST = RestartPolicy(first_pause_s=0.01)


def request(name: str, *prompt: int, tokens: int = 4) -> Request:
    params = SamplingParams(max_tokens=tokens, temperature=0.0)
    return Request(id=name, prompt=prompt or (97,), params=params)


@asynccontextmanager
async def started(policy: RestartPolicy = FAST, backlog: int = 8192, **changes):
    client = EngineClient(
        config_for(Path("unused"), **changes), BUILDER, policy=policy, backlog=backlog
    )
    try:
        await client.start()
        yield client
    finally:
        await client.close(5)


async def outputs_of(client: EngineClient, *requests: Request):
    async with aclosing(client.generate(*requests)) as outputs:
        return [output async for output in outputs]


async def until(condition) -> None:
    async def poll():
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), 30)


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_requests_of_one_call_come_back_under_their_ids():
    async def main():
        async with started() as client:
            assert client.ready and client.info.backend == "scripted"
            return await outputs_of(client, request("a", 97), request("b", 48))

    outputs = asyncio.run(main())
    tokens = {"a": [], "b": []}
    for output in outputs:
        tokens[output.request_id].extend(output.token_ids)
    assert tokens == {"a": [98, 99, 100, 101], "b": [49, 50, 51, 52]}
    assert sum(output.finish is FinishReason.LENGTH for output in outputs) == 2


def test_closing_the_iterator_aborts():
    async def main():
        async with started(chip_option={"step_s": "0.005"}) as client:
            async with aclosing(client.generate(request("a", tokens=200))) as outputs:
                await anext(outputs)
            await until(lambda: client.stats.aborted == 1 and client.stats.running == 0)

    asyncio.run(main())


def test_abort_answers_the_reader_at_once():
    async def main():
        async with started(chip_option={"step_s": "0.005"}) as client:
            async with aclosing(client.generate(request("a", tokens=200))) as outputs:
                await anext(outputs)
                assert client.abort("a") and not client.abort("a")
                rest = [output async for output in outputs]
            assert rest[-1].finish is FinishReason.ABORT
            await until(lambda: client.stats.aborted == 1)

    asyncio.run(main())


def test_a_refusal_of_the_engine_is_raised_and_its_siblings_end():
    async def main():
        async with started() as client:
            with pytest.raises(RequestRefused, match="context length 256"):
                await outputs_of(client, request("a", tokens=200), request("b", *([97] * 300)))
            await until(lambda: client.stats.running == 0)
            with pytest.raises(RequestRefused, match="in use"):
                async with aclosing(client.generate(request("c", tokens=200))) as outputs:
                    await anext(outputs)
                    await outputs_of(client, request("c"))

    asyncio.run(main())


def test_a_full_queue_is_told_apart():
    async def main():
        options = {"step_s": "0.01"}
        limits = {"max_running_requests": 1, "max_queued_requests": 1}
        async with started(chip_option=options, **limits) as client:
            running = client.generate(request("a", tokens=200))
            await anext(running)
            with pytest.raises(QueueFull):
                await outputs_of(client, request("b"), request("c"))
            await running.aclose()

    asyncio.run(main())


def test_flush_only_when_idle():
    async def main():
        async with started(chip_option={"step_s": "0.005"}) as client:
            async with aclosing(client.generate(request("a", tokens=200))) as outputs:
                await anext(outputs)
                assert await client.flush() is False
            await until(lambda: client.stats.running == 0)
            assert await client.flush() is True

    asyncio.run(main())


def test_a_slow_reader_is_ended_with_an_error():
    async def main():
        async with started(backlog=10) as client:
            outputs = client.generate(request("a", tokens=200))
            first = await anext(outputs)  # the last one too, where the engine was that far ahead
            await until(lambda: client.stats.running == 0)
            return [first, *[output async for output in outputs]][-1]

    last = asyncio.run(main())
    assert last.finish is FinishReason.ERROR and "too slowly" in last.error


def test_a_step_that_fails_ends_its_requests_alone():
    async def main():
        async with started() as client:
            last = (await outputs_of(client, request("a", FAIL)))[-1]
            assert last.finish is FinishReason.ERROR and "scripted failure" in last.error
            assert client.deaths == 0
            assert (await outputs_of(client, request("b")))[-1].finish is FinishReason.LENGTH

    asyncio.run(main())


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (FATAL, "scripted failure"),
        (KILL, "killed by SIGKILL"),
        (BUG, "ZeroDivisionError: a bug"),
    ],
)
def test_a_death_ends_running_requests_and_the_engine_comes_back(token, reason):
    async def main():
        async with started() as client:
            last = (await outputs_of(client, request("a"), request("b", token)))[-1]
            assert last.finish is FinishReason.ERROR and reason in last.error
            assert client.state is EngineState.RESTARTING and reason in client.reason
            with pytest.raises(EngineUnavailable, match="restarting"):
                await outputs_of(client, request("c"))
            await until(lambda: client.ready)
            assert (await outputs_of(client, request("c")))[-1].finish is FinishReason.LENGTH
            assert client.deaths == 1

    asyncio.run(main())


def test_three_deaths_are_the_end_with_the_reason():
    async def main():
        async with started() as client:
            for letter in b"abc":
                await until(lambda: client.ready)
                await outputs_of(client, request("a", letter, KILL))
            await until(lambda: client.state is EngineState.FAILED)
            with pytest.raises(EngineUnavailable, match=r"3 engine deaths.*SIGKILL"):
                await outputs_of(client, request("b"))
            assert client.pid is None

    asyncio.run(main())


def test_a_request_present_in_two_crashes_is_refused_and_the_engine_lives_on():
    async def main():
        async with started() as client:
            for name in ("a", "b"):
                await outputs_of(client, request(name, KILL), request(name + "2", 48))
                await until(lambda: client.ready)
            with pytest.raises(RequestSuspected, match="present in 2 crashes"):
                await outputs_of(client, request("c", KILL))
            assert (await outputs_of(client, request("d")))[-1].finish is FinishReason.LENGTH
            assert client.ready and client.deaths == 2

    asyncio.run(main())


def test_a_request_whose_client_left_before_the_crash_counts_too(tmp_path):
    taken = tmp_path / "taken"  # by the engine, which hangs before it reads that the client left

    async def main():
        options = {"record": str(taken)}
        async with started(watchdog_timeout=1.0, chip_option=options) as client:
            for name in ("a", "b"):
                outputs = client.generate(request(name, HANG))
                task = asyncio.ensure_future(anext(outputs))
                await until(lambda name=name: f'"{name}"' in text_of(taken))
                task.cancel()
                await asyncio.wait({task})
                await outputs.aclose()
                await until(lambda: not client.ready)
                await until(lambda: client.ready)
            with pytest.raises(RequestSuspected):
                await outputs_of(client, request("c", HANG))

    asyncio.run(main())


def test_the_pauses_double_and_end():
    policy = RestartPolicy(deaths=4)
    assert [policy.pause_s(n) for n in (1, 2, 3, 4)] == [1, 2, 4, None]


def test_a_silent_engine_is_killed_by_the_watchdog():
    async def main():
        async with started(watchdog_timeout=1.5) as client:
            last = (await outputs_of(client, request("a", HANG)))[-1]
            assert last.finish is FinishReason.ERROR and "--watchdog-timeout 1.5" in last.error
            await until(lambda: client.ready)

    asyncio.run(main())


def test_an_idle_engine_says_that_it_lives_without_being_asked():
    async def main():
        async with started() as client:
            heard = []
            client.on_message = heard.append
            await until(lambda: len(heard) == 2)
            assert client.ready and client.deaths == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start_error": "no memory"}, "^no memory$"),
        ({"crash_in_start": "1"}, "killed by SIGKILL"),
        ({"start_s": "no number"}, "ValueError: could not convert string to float"),
    ],
)
def test_a_failed_start_is_a_start_error(options, text):
    async def main():
        async with started(chip_option=options):
            raise AssertionError("it started")

    with pytest.raises(StartError, match=text):
        asyncio.run(main())


def test_an_unknown_builder_is_a_start_error():
    async def main():
        client = EngineClient(config_for(Path("unused")), "no_such_module:build")
        with pytest.raises(StartError, match="no_such_module"):
            await client.start()
        await client.close(1)

    asyncio.run(main())


def test_close_ends_the_process_even_in_a_long_step():
    async def main():
        async with started() as client:
            task = asyncio.create_task(outputs_of(client, request("a", HANG)))
            await asyncio.sleep(0.1)
            pid = client.pid
            await client.close(0.1)
            assert (await task)[-1].finish is FinishReason.ERROR
            return pid

    assert not alive(asyncio.run(main()))


def test_the_start_log_of_the_engine_is_forwarded(caplog):
    async def main():
        async with started():
            pass

    caplog.set_level("INFO")
    asyncio.run(main())
    assert "scripted engine: weights read" in caplog.messages
