"""`anychip bisect`: finds the operator whose implementation changes the text."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from anychip.cli.local import with_model
from anychip.cli.output import say
from anychip.config import ConfigError, FlagParser, ServeConfig, own_values, parse, serve_parser
from anychip.flags import Flag, add_flags, declared

if TYPE_CHECKING:
    from anychip.engine.bisect_run import Finding

_GROUP = "bisect"
OBEYED = ("model", "chip", "memory", "files and logging")
"""Groups of settings that have a meaning here: one request runs at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """What --backend is compared with, and on which text."""

    backend_ref: str | None = declared(
        None, Flag(("--backend-ref",), _GROUP, "chip whose text is taken as right", "CHIP")
    )
    chip_option_ref: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(
                ("--chip-option-ref",), _GROUP, "option of that chip, repeatable", "NAME=VALUE"
            )
        },
    )
    device_index_ref: int = declared(
        0, Flag(("--device-index-ref",), _GROUP, "which device of that chip", low=0)
    )
    prompt: str = declared(
        "The quick brown fox", Flag(("--prompt",), _GROUP, "text to continue", "TEXT")
    )
    chunked_prefill_size: int | None = declared(
        None,
        Flag(
            ("--chunked-prefill-size",),
            _GROUP,
            "tokens of the prompt in a step, -1: no chunks [the chip's]",
            low=-1,
        ),
    )
    max_new_tokens: int = declared(
        32, Flag(("--max-new-tokens", "--max-tokens"), _GROUP, "tokens to compare", low=1)
    )


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip bisect",
        "Find the operator whose implementation changes a greedy text: the model runs on --backend"
        " with some operators computed by --backend-ref, until the fewest are found with which the"
        " text is the same. Where the texts differ this takes minutes: the model runs anew in each"
        " of some 5 to 25 trials; fewer --max-new-tokens make it faster."
        " Exit code 0: same text; 1: an operator was found; 2: cannot be judged.",
        OBEYED,
    )
    add_flags(parser, BisectOptions)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    sound = ServeConfig.backend
    parser.show_examples(
        f"anychip bisect --model-path model.gguf --backend mychip --backend-ref {sound}",
        f"anychip bisect --backend {sound} --backend-ref {sound} --chip-option-ref NAME=VALUE",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Print what was found; progress goes to standard error."""
    config, namespace = parse(add_arguments(), argv)
    options = BisectOptions(**own_values(BisectOptions, namespace))
    if not options.backend_ref:
        raise ConfigError("--backend-ref: name the chip to compare with, see `anychip chips`")
    if namespace.chat_template is not None:
        raise ConfigError("--chat-template: the prompt is plain text here; leave it out")
    level = config.log_level.upper()
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s")
    from anychip.engine.bisect import CannotJudge
    from anychip.engine.bisect_run import Question, bisect, check_chips
    from anychip.engine.build import REFUSALS

    asked = Question(
        config,
        options.backend_ref,
        options.prompt,
        options.max_new_tokens,
        chip_option_ref=options.chip_option_ref,
        device_index_ref=options.device_index_ref,
    )
    try:
        check_chips(asked)
        found = bisect(dataclasses.replace(asked, config=with_model(config)), _progress)
    except (CannotJudge, *REFUSALS) as error:
        print(f"anychip: cannot be judged: {error}", file=sys.stderr)
        return 2
    say(_as_json(found) if namespace.json else str(found))
    return found.exit_code


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _as_json(found: Finding) -> str:
    fields: dict[str, Any] = {**dataclasses.asdict(found), "outcome": found.outcome}
    if found.evidence is not None:
        fields["evidence"]["verdict"] = found.evidence.verdict.value
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()
