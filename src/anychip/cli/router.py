"""`anychip router`: one endpoint over several servers until SIGTERM or SIGINT."""

from __future__ import annotations

from collections.abc import Sequence

from anychip.config import FlagParser, RouterConfig, parse_router
from anychip.flags import add_flags


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = FlagParser(
        "anychip router",
        "Stand before several OpenAI-compatible servers, the workers, and give each call to the one"
        " that suits it. Workers may start later, end and come back. Each flag is also an"
        " environment variable (--policy: ANYCHIP_POLICY) and a key of the --config file, where"
        " pairs are a map and rules a list. Defaults are in [brackets]; (SGLang: ...) tells where"
        " SGLang's router has another default or meaning. Ctrl-C and SIGTERM end it with exit code"
        " 0; what runs has --shutdown-timeout to finish, a second signal ends it at once.",
    )
    add_flags(parser, RouterConfig)
    parser.show_examples(
        "anychip router --worker fast=http://127.0.0.1:30001 --worker big=http://127.0.0.1:30002",
        "anychip router --worker-urls http://127.0.0.1:30001 http://127.0.0.1:30002 --port 8000",
        "anychip router --worker fast=URL --worker big=URL --rule 'prompt_tokens>4096: big'",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Pass calls on until told to stop; the exit code."""
    config = parse_router(add_arguments(), argv)
    from anychip.router.run import serve

    return serve(config)
