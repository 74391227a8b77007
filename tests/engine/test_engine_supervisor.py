"""The supervisor over doubles of the engine process, whose ends a real one cannot have at will."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from anychip.engine.child import EngineChild, Hearing
from anychip.engine.messages import Boot, EngineInfo, Ready, StepMessage
from anychip.engine.supervisor import EngineState, RestartPolicy, Supervisor
from anychip.plan import SchedulerStats

INFO = EngineInfo(
    backend="double",
    device="double:0",
    model_name="none",
    vocab_size=8,
    context_length=8,
    page_size=1,
    pages=8,
    max_running=1,
)
BOOT = Boot("nowhere:build", msgspec.Raw(msgspec.msgpack.encode({})))
HEARTBEAT = StepMessage([], SchedulerStats())


class Double:
    """A child that says what it is told to, then is silent or hangs up."""

    pid = 4711

    def __init__(self, *messages, hangs_up=True, code=0):
        self.messages, self.hangs_up, self.code = list(messages), hangs_up, code
        self.ended = 0

    async def listen(self, take):
        while self.messages:
            take(self.messages.pop(0))
        if not self.hangs_up:
            await asyncio.Event().wait()

    def send(self, items):
        pass

    async def end(self, patience_s):
        self.ended += 1
        return self.code


class Listener:
    def __init__(self):
        self.down = []

    def on_message(self, message):
        pass

    def on_down(self, reason):
        self.down.append(reason)


class Scene:
    """A supervisor whose processes are these doubles, one after another."""

    def __init__(self, *doubles, watchdog_s=0.1):
        self.waiting, self.launched = list(doubles), []
        self.listener = Listener()
        policy = RestartPolicy(first_pause_s=0.01)
        self.supervisor = Supervisor(BOOT, self.listener, policy, watchdog_s, self.launch)

    async def launch(self, boot):
        self.launched.append(self.waiting.pop(0))
        return self.launched[-1]

    async def until(self, state):
        async def poll():
            while self.supervisor.state is not state:
                await asyncio.sleep(0.005)

        await asyncio.wait_for(poll(), 10)


@pytest.mark.parametrize("hangs_up", [True, False])
def test_a_process_that_cannot_be_killed_keeps_its_device_out_of_use(hangs_up, caplog):
    async def main():
        spare = Double(Ready(INFO), hangs_up=False)
        scene = Scene(Double(Ready(INFO), hangs_up=hangs_up, code=None), spare)
        await scene.supervisor.start()
        await scene.until(EngineState.FAILED)
        await asyncio.sleep(0.1)  # ten times the pause before a restart
        assert len(scene.launched) == 1 and scene.supervisor.pid is None
        assert scene.listener.down == [scene.supervisor.reason.partition(": ")[2]]
        await asyncio.wait_for(scene.supervisor.close(1), 5)
        return scene.listener.down[0]

    reason = asyncio.run(main())
    assert "process 4711" in reason and "SIGKILL" in reason and "holds its device" in reason
    assert ("--watchdog-timeout" in reason) is not hangs_up
    assert [record.levelname for record in caplog.records][-1] == "CRITICAL"
    assert "no other is started" in caplog.text


def test_closing_waits_a_bounded_time_for_a_process_that_cannot_be_killed():
    async def main():
        scene = Scene(Double(Ready(INFO), hangs_up=False, code=None), watchdog_s=60)
        await scene.supervisor.start()
        await asyncio.wait_for(scene.supervisor.close(0.05), 5)
        assert scene.supervisor.state is EngineState.CLOSED and scene.launched[0].ended == 1

    asyncio.run(main())


def test_a_restart_that_never_gets_ready_is_a_death():
    async def main():
        hanging = [Double(hangs_up=False, code=-9) for _ in range(2)]
        scene = Scene(Double(Ready(INFO)), *hanging)
        await scene.supervisor.start()
        await scene.until(EngineState.FAILED)
        assert len(scene.launched) == 3 and scene.supervisor.deaths == 3
        await scene.supervisor.close(1)
        return scene.supervisor

    asyncio.run(main())


def test_a_restart_that_never_gets_ready_is_told():
    async def main():
        scene = Scene(
            Double(Ready(INFO)), Double(hangs_up=False), Double(Ready(INFO), hangs_up=False)
        )
        await scene.supervisor.start()
        while len(scene.listener.down) < 2:
            await asyncio.sleep(0.005)
        await scene.supervisor.close(1)
        return scene.listener.down[1]

    assert asyncio.run(main()) == "it was not ready again within 0.1 s"


def test_a_first_start_may_take_as_long_as_it_likes():
    class Slow(Double):
        async def listen(self, take):
            await asyncio.sleep(0.3)
            await super().listen(take)

    async def main():
        scene = Scene(Slow(Ready(INFO), HEARTBEAT, hangs_up=False))
        assert await asyncio.wait_for(scene.supervisor.start(), 5) == INFO
        assert scene.supervisor.deaths == 0
        await scene.supervisor.close(0)

    asyncio.run(main())


class Undead:
    """A process in uninterruptible sleep: signals do nothing to it."""

    def poll(self):
        return None


class UndeadChild(EngineChild):
    """Its signals go nowhere: the double has no process id that they could be sent to."""

    kills = 0

    def kill(self):
        self.kills += 1


class Writer:
    closed = False

    def close(self):
        self.closed = True


def test_the_end_of_a_child_is_bounded_even_where_a_kill_does_nothing():
    async def main():
        writer = Writer()
        child = UndeadChild(Undead(), Hearing(), writer)
        assert await asyncio.wait_for(child.end(0.02, kill_s=0.05), 5) is None
        assert child.kills and writer.closed

    asyncio.run(main())
