"""`anychip bisect` from its question to what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from anychip.config import ServeConfig
from anychip.contract.discovery import open_chip
from anychip.engine.bisect import Bisection, CannotJudge, Culprit, Search, first_difference
from anychip.engine.bisect_evidence import Asked, Evidence, Verdict, evidence
from anychip.engine.loaded import Answer, LoadedModel, answer
from anychip.model.checkpoint import open_checkpoint
from anychip.run.local_model import local_model
from anychip.run.plan_run import chip_options
from anychip.text.load import open_tokenizer
from anychip.text.tokenizer import Tokenizer

Report = Callable[[str], None]
SAME, OPERATOR, ELSEWHERE = 0, 1, 2


@dataclass(frozen=True)
class Question:
    """Which chips and which text. config: the chip that is asked about, and the model."""

    config: ServeConfig
    backend_ref: str
    prompt: str
    max_new_tokens: int
    chip_option_ref: Mapping[str, str] = field(default_factory=dict)
    device_index_ref: int = 0


@dataclass(frozen=True)
class Finding:
    """What was found. text, text_ref: the chip's and the reference's, behind a prompt of
    `prompt_tokens` tokens; new_tokens: of the reference's text."""

    backend: str
    backend_ref: str
    text: str
    text_ref: str
    prompt_tokens: int
    new_tokens: int
    same: bool
    culprits: tuple[Culprit, ...] = ()
    notes: tuple[str, ...] = ()
    evidence: Evidence | None = None
    trials: int = 0

    @property
    def exit_code(self) -> int:
        """0 same text, 1 an operator changes it, 2 something else does."""
        if self.same:
            return SAME
        return OPERATOR if self.culprits else ELSEWHERE

    @property
    def outcome(self) -> str:
        """One line."""
        if self.same:
            return (
                f"same text on {self.backend} and {self.backend_ref}: "
                f"{_tokens(self.prompt_tokens)} of prompt, {_tokens(self.new_tokens)} compared"
            )
        if not self.culprits:
            return (
                f"no operator of {self.backend} changes the text: with all of them from "
                f"{self.backend_ref} it still differs; look at memory, page tables, sampling"
            )
        names = " and ".join(map(str, self.culprits))
        verb = "changes" if len(self.culprits) == 1 else "together change"
        which = "it" if len(self.culprits) == 1 else "them"
        tie = self.evidence is not None and self.evidence.verdict is Verdict.ROUNDING
        return (
            f"{names} {verb} the text{' by rounding' if tie else ''}: with {which} from "
            f"{self.backend_ref} the text is {self.backend_ref}'s"
        )

    def __str__(self) -> str:
        lines = [self.outcome]
        if not self.same:
            lines += [
                f"  {self.backend}: {self.text!r}",
                f"  {self.backend_ref}: {self.text_ref!r}",
            ]
        lines += [f"  {note}" for note in self.notes]
        if self.evidence is not None:
            lines += [f"  {line}" for line in _judged(self.evidence, self)]
        return "\n".join(lines)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def check_chips(asked: Question) -> None:
    """Open both chips and close them again: a model is loaded only where both are there.

    Raises ContractError, ChipError.
    """
    for config in (asked.config, _of_reference(asked, asked.config)):
        open_chip(config.backend, config.device_index, chip_options(config)).close()


def _of_reference(asked: Question, config: ServeConfig) -> ServeConfig:
    return replace(
        config,
        backend=asked.backend_ref,
        device_index=asked.device_index_ref,
        chip_option=dict(asked.chip_option_ref),
        op={},
    )


def bisect(asked: Question, report: Report) -> Finding:
    """Compare two chips' greedy texts and find what makes the difference.

    report: takes a line for each trial. Raises CannotJudge, and what a start raises.
    """
    asked = replace(asked, config=local_model(asked.config))
    path = Path(str(asked.config.model_path)).expanduser()
    tokenizer = open_tokenizer(Path(asked.config.tokenizer_path or path))
    prompt = tokenizer.encode(asked.prompt)
    if not prompt:
        raise CannotJudge("the prompt has no tokens; give some text with --prompt")
    with _loaded(asked, path, len(prompt) + asked.max_new_tokens, report) as (own, reference):
        own_name, name = _names(asked)
        report(f"text of {name} alone")
        wanted = _alone(reference, prompt, asked.max_new_tokens)
        if wanted.error:
            raise CannotJudge(f"{name} has no answer: {wanted.error}")
        report(f"text of {own_name} alone")
        got = _alone(own, prompt, asked.max_new_tokens)
        found = Bisection(own, reference, prompt, wanted.tokens, report)
        return _finding(asked, tokenizer, found, (got, wanted))


def _alone(model: LoadedModel, prompt: Sequence[int], count: int) -> Answer:
    with model.session() as session:
        return answer(session, prompt, count)


def _finding(
    asked: Question, tokenizer: Tokenizer, found: Bisection, answers: tuple[Answer, Answer]
) -> Finding:
    got, wanted = answers
    first = first_difference(got.tokens, wanted.tokens)
    names = _names(asked)
    texts = tokenizer.decode([t for t in got.tokens if t >= 0]), tokenizer.decode(wanted.tokens)
    counts = len(found.prompt), len(wanted.tokens)
    if first is None:
        return Finding(*names, *texts, *counts, same=True)
    search: Search = found.search()
    found.report("the step where they part, each operator against the oracle")
    asked_of = Asked(first, names, frozenset(c.op for c in search.culprits))
    seen = evidence(found, got, wanted, asked_of)
    return Finding(
        *names,
        *texts,
        *counts,
        same=False,
        culprits=search.culprits,
        notes=search.notes,
        evidence=seen,
        trials=search.trials,
    )


def _names(asked: Question) -> tuple[str, str]:
    """Names of the two, told apart by their options where the chip is the same."""
    own, reference = asked.config.backend, asked.backend_ref
    if own != reference:
        return own, reference
    chosen = {**asked.config.chip_option, **asked.config.op}
    return _named(own, chosen), _named(reference, asked.chip_option_ref) + " (ref)"


def _named(backend: str, options: Mapping[str, str]) -> str:
    given = ",".join(f"{name}={value}" for name, value in options.items())
    return f"{backend}[{given}]" if given else backend


@contextmanager
def _loaded(
    asked: Question, path: Path, tokens: int, report: Report
) -> Iterator[tuple[LoadedModel, LoadedModel]]:
    """The model on both chips: same dtypes, page size and chunks, caches for one request."""
    config = replace(
        asked.config,
        model_path=str(path),
        max_running_requests=1,
        max_total_tokens=asked.config.max_total_tokens or max(tokens, 64),
        context_length=asked.config.context_length or _context(path, tokens),
    )
    report(f"loading the model on {_names(asked)[0]}")
    with LoadedModel(config) as own:
        plan = own.opened.plan
        other = replace(
            _of_reference(asked, config),
            dtype=plan.dtype.value,
            kv_cache_dtype=plan.group.dtype.value,
            page_size=plan.group.page_size,
            chunked_prefill_size=own.opened.chunk,
        )
        report(f"loading the model on {_names(asked)[1]}")
        with LoadedModel(other) as reference:
            yield own, reference


def _context(path: Path, tokens: int) -> int:
    """Positions that the run needs, as far as the model has them: tables stay small."""
    checkpoint = open_checkpoint(path)
    try:
        return min(checkpoint.config.context_length, max(tokens, 64))
    finally:
        checkpoint.close()


def _judged(seen: Evidence, found: Finding) -> list[str]:
    """The evidence for a person."""
    lines = [str(seen), *map(str, seen.errors)]
    lines += [f"{found.backend}, {text}" for text in seen.own]
    lines += [f"{found.backend_ref}, {text}" for text in seen.reference]
    if seen.verdict is Verdict.ROUNDING:
        lines.append(
            f"no operator of that step diverges from the oracle on either chip ({seen.checked} "
            "calls): both are within rounding, the two logits are nearly tied"
        )
    elif seen.verdict is Verdict.REFERENCE:
        lines.append(f"it is {found.backend_ref} that is wrong there")
    return lines
