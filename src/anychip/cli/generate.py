"""`anychip generate`: answers prompts offline, in this process's own engine."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from anychip.cli.local import with_model
from anychip.cli.output import say
from anychip.config import CHECKED, ConfigError, FlagParser, own_values, parse, serve_parser
from anychip.flags import Flag, add_flags, declared
from anychip.request import FinishReason, SamplingParams

if TYPE_CHECKING:
    import argparse

    from anychip.engine.offline import Completion
    from anychip.run.check import StepChecker

_GROUP = "generate"
log = logging.getLogger("anychip.engine")

_ENOUGH_TOKENS = 4
_SLOW = (
    f"--check-ops: --max-new-tokens {_ENOUGH_TOKENS} is enough to meet most defects; "
    "`anychip doctor --check-ops` checks three steps, which takes seconds"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """How to answer. Greedy by default; ranges are those of SamplingParams."""

    max_new_tokens: int = declared(
        128, Flag(("--max-new-tokens", "--max-tokens"), _GROUP, "longest answer, tokens", low=1)
    )
    temperature: float = declared(
        0.0, Flag(("--temperature",), _GROUP, "0: greedy", "T", low=0, high=100)
    )
    top_k: int = declared(-1, Flag(("--top-k",), _GROUP, "most likely tokens, -1: all", low=-1))
    top_p: float = declared(
        1.0, Flag(("--top-p",), _GROUP, "share of the probability", "P", low=1e-9, high=1)
    )
    min_p: float = declared(
        0.0, Flag(("--min-p",), _GROUP, "least probability beside the best", "P", low=0, high=1)
    )
    seed: int = declared(0, Flag(("--seed",), _GROUP, "seed of the draws", low=0, high=2**63 - 1))
    chat: bool = declared(False, Flag(("--chat",), _GROUP, "the prompt is a user's chat message"))
    json: bool = declared(False, Flag(("--json",), _GROUP, "print objects with ids and usage"))

    def sampling(self) -> SamplingParams:
        """The engine's form. Raises ConfigError for a top_k of 0."""
        if self.top_k == 0:
            raise ConfigError("--top-k: 0 keeps no token; use -1 for all of them")
        return SamplingParams(
            max_tokens=self.max_new_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            seed=self.seed,
        )


def add_arguments() -> FlagParser:
    """The parser of this command: prompts, sampling, and the settings that have a meaning here."""
    parser = serve_parser("anychip generate", "Answer prompts without a server.", CHECKED)
    parser.show_examples(
        'anychip generate --prompt "The capital of France is"',
        "anychip generate --model-path DIR_OR_GGUF --chat --prompt-file FILE --json",
    )
    source = parser.add_argument_group("prompt (standard input where neither is given)")
    source.add_argument("--prompt", action="append", metavar="TEXT", help="a prompt, repeatable")
    source.add_argument("--prompt-file", metavar="FILE", help="a file that is one prompt")
    add_flags(parser, GenerateOptions)
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the answers, one after another; 1 where the engine could not finish one, or where
    --check-ops found an operator that diverges."""
    config, namespace = parse(add_arguments(), argv)
    options = GenerateOptions(**own_values(GenerateOptions, namespace))
    params, prompts = options.sampling(), read_prompts(namespace)
    config = with_model(config)
    level = config.log_level.upper()
    from anychip.engine.passing import LogWriter

    logging.basicConfig(level=level, handlers=[LogWriter()], format="%(levelname)s %(message)s")
    from anychip.engine.build import end_checks
    from anychip.engine.offline import OfflineEngine

    if config.check_ops and options.max_new_tokens > _ENOUGH_TOKENS:
        log.info(_SLOW)
    with OfflineEngine(config, report=logging.getLogger("anychip").info) as engine:
        answers = engine.generate(prompts, params, chat=options.chat)
        checker = end_checks(engine.engine) if config.check_ops else None
    for number, answer in enumerate(answers, 1):
        if len(answers) > 1 and not options.json:
            say(f"--- prompt {number}")
        say(_as_json(answer) if options.json else answer.text)
        if answer.error:
            print(f"anychip: error: {answer.error}", file=sys.stderr)
        elif answer.finish == FinishReason.LENGTH:
            _tell_if_cut(answer, options)
    diverged = checker is not None and _tell_checks(checker)
    return 1 if diverged or any(answer.error for answer in answers) else 0


def _tell_if_cut(answer: Completion, options: GenerateOptions) -> None:
    """Where the context was full before --max-new-tokens."""
    tokens = len(answer.token_ids)
    if tokens < options.max_new_tokens:
        log.warning(
            "the answer ends after %s of --max-new-tokens %s: with the prompt's %s the context is "
            "full; see --context-length",
            *(tokens, options.max_new_tokens, answer.prompt_tokens),
        )


def _tell_checks(checker: StepChecker) -> bool:
    """Whether an operator diverged, and the counts: an error then, a line of the log otherwise."""
    if checker.found:
        print(f"anychip: error: {checker.counts}", file=sys.stderr)
    else:
        log.info("%s", checker.counts)
    return bool(checker.found)


def read_prompts(namespace: argparse.Namespace) -> list[str]:
    """The prompts that were asked for. Raises ConfigError where there is none to read."""
    if namespace.prompt and namespace.prompt_file:
        raise ConfigError("--prompt and --prompt-file: give one of them")
    prompts = namespace.prompt or [_read(namespace.prompt_file)]
    if not all(prompts):
        raise ConfigError("--prompt: the prompt is empty; give some text")
    return list(prompts)


def _read(file: str | None) -> str:
    if file is None:
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--prompt-file: cannot read {file}: {error}") from error


def _as_json(answer: Completion) -> str:
    fields = ("text", "token_ids", "finish", "prompt_tokens", "cached_tokens", "error")
    return msgspec.json.encode({name: getattr(answer, name) for name in fields}).decode()
