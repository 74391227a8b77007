"""`anychip serve`: a model over HTTP until SIGTERM or SIGINT, which end it with exit code 0.

The engine's process is spawned before anything else is imported: both import side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anychip.engine.spawn import Spawned, spawned_ahead
from anychip.signals import answered

if TYPE_CHECKING:
    from anychip.config import FlagParser


def add_arguments() -> FlagParser:
    """The parser of this command."""
    from anychip.config import serve_parser

    parser = serve_parser(
        "anychip serve",
        "Serve a model over HTTP. Each flag is also an environment variable (--page-size:"
        " ANYCHIP_PAGE_SIZE) and a key of the --config file; flags win over the environment, the"
        " environment over the file. Defaults are in [brackets]; (SGLang: ...) tells where SGLang"
        " has another default or meaning. Ctrl-C and SIGTERM end it with exit code 0, while it"
        " starts too; what runs has --shutdown-timeout to finish, a second signal ends it at once.",
    )
    parser.show_examples(
        "anychip serve",
        "anychip serve --model-path DIR_OR_GGUF --backend CHIP --port 8000",
        "anychip serve --model-path ORG/NAME",
        "anychip serve --model-path ORG/NAME-GGUF:Q4_K_M",
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Serve until told to stop; the server's exit code."""
    if {"-h", "--help"} & set(argv):
        return _run(argv, None)
    with spawned_ahead() as spawned:
        return _run(argv, spawned)


def _run(argv: Sequence[str], spawned: Spawned | None) -> int:
    from anychip.cli.local import with_model
    from anychip.config import parse

    config, _ = parse(add_arguments(), argv)
    with answered() as ending, ending.unwinding():  # a fetch has a child, and files half written
        config = with_model(config)
    _ = config.build_path  # no place for built kernels: told here, not by the engine's process
    from anychip.server.run import serve

    return serve(config, spawned=spawned)
