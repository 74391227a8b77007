"""`anychip doctor`: a chip, then what it makes of a model, then real steps against the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.signature import Tier
from anychip.engine.build import checker_of, planned_memory
from anychip.engine.offline import OfflineEngine
from anychip.ops.record import Served
from anychip.request import SamplingParams
from anychip.run.check import Found, StepChecker
from anychip.run.doctor import ChipLooks, Look, examine
from anychip.run.memory_plan import workspace_bytes
from anychip.run.plan_run import Opened, open_run

PROMPT = "The capital of France is"
CHECKED_TOKENS = 3
"""One prefill and two decode steps."""

CHECKED_CACHE = 4096
"""Tokens of the KV cache for those steps, unless the user says otherwise."""


def doctor(config: ServeConfig, *, model: bool) -> Iterator[Finding]:
    """Findings as they are made. model: look at the configured model too, and with
    `config.check_ops` run it, checked. A look that cannot be taken says so."""
    chip = ChipLooks(config)
    try:
        stopped = yield from examine(chip.all())
    finally:
        chip.close()
    if not model:
        return
    looks = ModelLooks(config)
    try:
        yield from examine(looks.all(), stopped)
    finally:
        looks.close()


class ModelLooks:
    """The looks at one model on a chip. Close it: it may hold the opened device."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._opened: Opened | None = None

    def all(self) -> tuple[Look, ...]:
        """In order; operators are only checked where the configuration asks for it."""
        looks = (
            Look("model", self._model, "anychip coverage --help lists the settings", gate=True),
            Look("operators", self._operators, "anychip coverage tells more", gate=True),
            Look("memory plan", self._memory, "change what the text names", gate=True),
        )
        if not self._config.check_ops:
            return looks
        checked = Look("checked steps", self._checked, "anychip generate --check-ops tells more")
        return (*looks, checked)

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
        self.close()  # the engine opens the device itself
        config = self._config
        if config.max_total_tokens is None:
            tokens = max(CHECKED_CACHE, config.context_length or 0)
            config = replace(config, max_total_tokens=tokens)
        params = SamplingParams(max_tokens=CHECKED_TOKENS, temperature=0.0, ignore_eos=True)
        with OfflineEngine(config) as offline:
            (answer,) = offline.generate([PROMPT], params)
            checker = checker_of(offline.engine)
        if answer.error:
            yield Finding("checked steps", Verdict.BAD, answer.error, "see the error")
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
        yield Finding("checked steps", verdict, str(checker.counts), step)


def _diverged(found: Found) -> Finding:
    name = f"operator {found.divergence.op}"
    return Finding(name, Verdict.BAD, str(found), found.kept)
