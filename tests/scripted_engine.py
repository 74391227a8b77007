"""An engine whose model is a table, for tests: the real scheduler over a scripted runner.

The next token follows from the last one: letters and digits go round their alphabets, "\\n" begins
a smiling face of four bytes, "}" gives "~", "~" gives the end-of-sequence token, "%" gives a
letter chosen by the noise. A prompt with one of the control characters below makes it misbehave:
WAIT as if the request had waited for too long, RUN as if it had run for too long. None does so
with the option `polite`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.engine.engine import Engine
from anychip.engine.messages import EngineInfo, StartError
from anychip.plan import NOT_EMITTED, CacheLimits, Row, StepPlan, StepResult
from anychip.request import Failure, FinishReason, Request, StepOutput, TokenLogprob
from anychip.run.watched import Watching
from anychip.schedule.hooks import SchedulerHooks
from anychip.schedule.scheduler import Scheduler, SchedulerOptions

IM_START, EOS = 256, 257
VOCAB = 260
FATAL, KILL, FAIL, HANG, BUG, WAIT, RUN = 1, 2, 3, 4, 5, 6, 7
RUN_TOKENS = 6
_FACE = {10: 0xF0, 0xF0: 0x9F, 0x9F: 0x99, 0x99: 0x82, 0x82: ord("a")}


def next_token(last: int, noise: float = 0.0) -> int:
    if last in _FACE:
        return _FACE[last]
    if ord("a") <= last <= ord("z"):
        return ord("a") + (last - ord("a") + 1) % 26
    if ord("0") <= last <= ord("9"):
        return ord("0") + (last - ord("0") + 1) % 10
    chosen = {ord("}"): ord("~"), ord("~"): EOS, ord("%"): ord("a") + int(noise * 26)}
    return chosen.get(last, ord("a"))


class ScriptedRunner:
    def __init__(self, step_s: float, polite: bool = False) -> None:
        self.step_s, self.polite = step_s, polite
        self.watching = Watching()

    def stage(self, plan: StepPlan) -> None:
        pass

    def run(self, plan: StepPlan) -> StepResult:
        time.sleep(self.step_s)
        for row in () if self.polite else plan.rows:
            for token in row.tokens:
                misbehave(token)
        tokens = [chosen(row) if row.sample else -1 for row in plan.rows]
        rows = list(enumerate(plan.rows))
        return StepResult(
            tokens=tuple(tokens),
            logprobs={n: told(tokens[n], row.logprobs) for n, row in rows if row.logprobs >= 0},
            scores={
                n: tuple(told(token, row.score.top) for token in row.score.tokens)
                for n, row in rows
                if row.score
            },
        )

    def close(self) -> None:
        pass


def chosen(row: Row) -> int:
    return next_token(row.tokens[-1], row.noise) if row.emit == NOT_EMITTED else row.emit


def told(token: int, top: int) -> TokenLogprob:
    """A token's logprob is its id, negative, in hundredths; the likeliest are the ids below it."""
    likeliest = tuple((token - n, -(token - n) / 100) for n in range(1, top + 1))
    return TokenLogprob(-token / 100, top + 1, likeliest)


def misbehave(token: int) -> None:
    if token == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if token == HANG:
        time.sleep(60)
    if token == BUG:
        raise ZeroDivisionError("a bug")
    if token in (FATAL, FAIL):
        fact = ErrorFact(ChipLayer.EXECUTION, ErrorKind.LOST, token == FATAL, "scripted failure")
        raise ChipError(fact, chip="scripted")


class RecordingEngine(Engine):
    record: Path | None = None
    polite = False

    def __init__(self, *parts) -> None:
        super().__init__(*parts)
        self._late: list[StepOutput] = []
        self._timed: dict[str, int] = {}

    def submit(self, request: Request) -> None:
        if WAIT in request.prompt and not self.polite:
            self._late.append(failed(request.id, Failure.WAITED_TOO_LONG))
            return
        super().submit(request)
        if RUN in request.prompt and not self.polite:
            self._timed[request.id] = 0
        if self.record is not None:
            line = {"id": request.id, "prompt": request.prompt, **params_of(request)}
            with self.record.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def has_work(self) -> bool:
        return bool(self._late) or super().has_work()

    def step(self) -> list[StepOutput]:
        outputs, self._late = super().step() + self._late, []
        for output in list(outputs):
            if output.request_id in self._timed:
                self._timed[output.request_id] += len(output.token_ids)
                if self._timed[output.request_id] >= RUN_TOKENS:
                    del self._timed[output.request_id]
                    self.abort(output.request_id)
                    outputs.append(failed(output.request_id, Failure.RAN_TOO_LONG))
        return outputs


def failed(name: str, failure: Failure) -> StepOutput:
    text = f"scripted: {failure.value}"
    return StepOutput(request_id=name, finish=FinishReason.ERROR, error=text, failure=failure)


def params_of(request: Request) -> dict:
    names = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "seed", "draw")
    params = {name: getattr(request.params, name) for name in names}
    return {**params, "namespace": request.namespace, "priority": request.priority}


def build(config, report) -> tuple[Engine, EngineInfo]:
    """The builder that tests name. `chip_option` steers it."""
    options = config.chip_option
    if "start_error" in options:
        raise StartError(options["start_error"])
    if "crash_in_start" in options:
        os.kill(os.getpid(), signal.SIGKILL)
    if "compiler" in options:  # a process that the engine waits for
        child = subprocess.Popen(["sleep", "60"])
        Path(options["compiler"]).write_text(f"{child.pid}\n")
    time.sleep(float(options.get("start_s", "0")))
    report("scripted engine: weights read")
    context = config.context_length or 256
    limits = CacheLimits(
        pages=int(options.get("pages", "256")),
        page_size=config.page_size or 4,
        context_length=context,
        max_running=config.max_running_requests or 8,
        step_tokens=512,
        chunk=512,
    )
    asked = SchedulerOptions(
        policy=config.schedule_policy,
        max_queued=config.max_queued_requests,
        waiting_timeout_s=config.waiting_timeout,
        running_timeout_s=config.running_timeout,
        hooks=SchedulerHooks(force_retract_every=config.force_retract_every),
    )
    scheduler = Scheduler(limits, frozenset({EOS}), asked)
    polite = "polite" in options
    runner = ScriptedRunner(float(options.get("step_s", "0")), polite)
    engine = RecordingEngine(scheduler, runner)
    engine.polite = polite
    if "record" in options:
        engine.record = Path(options["record"])
    return engine, EngineInfo(
        backend="scripted",
        device="scripted:0",
        model_name="tiny",
        vocab_size=VOCAB,
        context_length=context,
        page_size=limits.page_size,
        pages=limits.pages,
        max_running=limits.max_running,
        eos_ids=(EOS,),
        memory={"cache": 1024},
        operators=(("rms_norm", "scripted", "native"),),
        contract=(0, 1),
    )
