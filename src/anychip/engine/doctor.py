"""`anychip doctor`: a chip, then what it makes of a model, then real steps against the oracle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed, run_in_child
from anychip.contract.signature import Tier
from anychip.engine.build import checker_of, planned_memory
from anychip.engine.doctor_shapes import shape_findings
from anychip.engine.offline import OfflineEngine
from anychip.engine.parent import die_with
from anychip.ops.record import Served
from anychip.request import SamplingParams
from anychip.run.check import Found, StepChecker
from anychip.run.doctor import ChipLooks, Look, closing, conform_step, examine
from anychip.run.memory_plan import workspace_bytes
from anychip.run.plan_run import Opened, open_run

PROMPT = "The capital of France is"
CHECKED_TOKENS = 3
"""One prefill and two decode steps."""

CHECK_TIMEOUT_S = 600.0
"""For those steps, loading the model included, unless the user says otherwise."""

CHECKED_CACHE = 4096
"""Tokens of the KV cache for those steps, unless the user says otherwise."""

MODEL_STEP = "name one that is there with --model-path; anychip demo fetches the demo model"
_CHECKED, _SHAPES = "checked steps", "real shapes"


def doctor(
    config: ServeConfig, *, model: bool, timeout_s: float = CHECK_TIMEOUT_S
) -> Iterator[Finding]:
    """Findings as they are made. model: look at the configured model too, and with
    `config.check_ops` run it, checked, for `timeout_s` seconds at most. A look that cannot be
    taken says so."""
    chip = ChipLooks(config)
    try:
        stopped = yield from examine(chip.all())
        yield from examine([closing(chip.close)])
    finally:
        chip.close()
    if not model:
        return
    looks = ModelLooks(config, timeout_s)
    try:
        yield from examine(looks.all(), stopped)
        yield from examine([closing(looks.close)])
    finally:
        looks.close()


class ModelLooks:
    """The looks at one model on a chip. Close it: it may hold the opened device."""

    def __init__(self, config: ServeConfig, timeout_s: float = CHECK_TIMEOUT_S) -> None:
        self._config, self._timeout_s = config, timeout_s
        self._opened: Opened | None = None

    def all(self) -> tuple[Look, ...]:
        """In order; operators are only checked where the configuration asks for it."""
        looks = (
            Look("model", self._model, MODEL_STEP, gate=True),
            Look(_SHAPES, self._shapes, conform_step(self._config, "operators")),
            Look("operators", self._operators, "anychip coverage tells more", gate=True),
            Look("memory plan", self._memory, "change what the text names", gate=True),
        )
        if not self._config.check_ops:
            return looks
        return (*looks, Look(_CHECKED, self._checked, conform_step(self._config, "operators")))

    def close(self) -> None:
        """Close the device and the files."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @property
    def _run(self) -> Opened:
        assert self._opened is not None  # "model" is a gate
        return self._opened

    def _model(self) -> Iterator[Finding]:
        self._opened = open_run(self._config)
        plan = self._run.plan
        text = f"{self._run.checkpoint.path}: {plan.config.architecture}, {plan.config.layers} "
        yield Finding("model", Verdict.GOOD, f"{text}layers, computed in {plan.dtype}")

    def _shapes(self) -> Iterator[Finding]:
        """Every operator that the model needs, in a process of its own; guesses are confirmed."""
        yield from shape_findings(self._config, self._run)

    def _operators(self) -> Iterator[Finding]:
        recorder = self._run.record()
        rows = recorder.served()
        for error in recorder.errors:
            yield Finding(f"operator {error.op}", Verdict.BAD, str(error), "bring it, or see there")
        kinds = {kind: _names(rows, kind) for kind in ("native", "composed", "host")}
        text = ", ".join(f"{len(names)} {kind}" for kind, names in kinds.items() if names)
        yield Finding("operators", Verdict.GOOD, text or "none is served")
        if kinds["host"]:
            text = f"on the host, slowly: {', '.join(kinds['host'])}"
            yield Finding("host operators", Verdict.UNKNOWN, text, "bring native ones")
        slow = [r.op for r in rows if r.kind == "composed" and r.tier == Tier.REQUIRED.value]
        if slow:
            text = f"composed, too slow to serve: {', '.join(slow)}"
            yield Finding("slow operators", Verdict.UNKNOWN, text, "bring native ones")

    def _memory(self) -> Iterator[Finding]:
        opened = self._run
        workspace = sum(workspace_bytes(opened.plan, opened.limits, opened.decider))
        memory = planned_memory(self._config, opened, workspace)
        sizes = (f"{name} {size / 2**20:,.0f} MiB" for name, size in memory.table().items())
        longest = f"longest sequence {memory.longest:,} of {opened.plan.context_length:,} tokens"
        verdict, step = Verdict.GOOD, ""
        if memory.longest < opened.plan.context_length:
            verdict, step = Verdict.UNKNOWN, "free memory, or take a smaller --context-length"
        yield Finding("memory plan", verdict, f"{', '.join(sizes)}; {longest}", step)

    def _checked(self) -> Iterator[Finding]:
        """In a process of its own: a kernel that crashes or hangs costs this look alone."""
        self.close()  # the engine opens the device itself
        config = replace(self._config, api_key=None, admin_api_key=None)
        question = {"config": msgspec.to_builtins(config), "parent": os.getpid()}
        try:
            found = run_in_child(f"{__name__}:answer_checked", question, self._timeout_s)
        except ChildFailed as error:
            text = f"no result from the process that ran them: {error}"
            text += f"; it has {self._timeout_s:g} s, see --check-timeout"
            yield Finding(_CHECKED, Verdict.BAD, text, conform_step(config, "operators"))
        else:
            yield from msgspec.convert(found, list[Finding])


def answer_checked(question: Mapping[str, Any]) -> list[Any]:
    """What the child does. question: a configuration, and the process that must not be outlived."""
    die_with(question["parent"])
    config = msgspec.convert(question["config"], ServeConfig)
    step = "anychip generate --check-ops tells more"
    looks = [Look(_CHECKED, lambda: _checked_steps(config), step)]
    return [msgspec.to_builtins(finding) for finding in examine(looks)]


def _checked_steps(config: ServeConfig) -> Iterator[Finding]:
    if config.max_total_tokens is None:
        tokens = max(CHECKED_CACHE, config.context_length or 0)
        config = replace(config, max_total_tokens=tokens)
    params = SamplingParams(max_tokens=CHECKED_TOKENS, temperature=0.0, ignore_eos=True)
    with OfflineEngine(config) as offline:
        (answer,) = offline.generate([PROMPT], params)
        checker = checker_of(offline.engine)
    if answer.error:
        yield Finding(_CHECKED, Verdict.BAD, answer.error, "see the error")
    assert checker is not None  # the configuration asks for it
    yield from _divergences(checker)


def _names(rows: list[Served], kind: str) -> list[str]:
    return list(dict.fromkeys(row.op for row in rows if row.kind == kind))


def _divergences(checker: StepChecker) -> Iterator[Finding]:
    for found in checker.found.values():
        yield _diverged(found)
    if not checker.found:
        unsure = bool(checker.counts.inconclusive)
        verdict = Verdict.UNKNOWN if unsure else Verdict.GOOD
        step = "another prompt or model may decide it" if unsure else ""
        yield Finding(_CHECKED, verdict, str(checker.counts), step)


def _diverged(found: Found) -> Finding:
    name = f"operator {found.divergence.op}"
    return Finding(name, Verdict.BAD, str(found), found.kept)
