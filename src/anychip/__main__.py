"""`anychip COMMAND ...`: finds the command, imports it alone, and tells errors in one line.

`serve` and `router` answer signals before anything else is imported: what takes time comes after.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from anychip import collecting
from anychip.signals import let_go, take_signals

COMMANDS: Mapping[str, str] = {
    "serve": "serve a model over HTTP",
    "router": "one endpoint over several servers, on different chips too",
    "generate": "answer prompts offline, without a server",
    "chat": "talk to a model in the terminal, started here or at a URL",
    "chips": "list the installed chips, or why one is unavailable",
    "models": "list the model families, and what each needs of a chip",
    "new-chip": "write an installable package for a chip of your own",
    "coverage": "which implementation serves each operator of a model, and what is missing",
    "conform": "prove that a chip keeps the contract, check by check; compare two such reports",
    "doctor": "look a chip over, with a model too: what is sound, what is not, what to do next",
    "record": "stand before any OpenAI-compatible server and record what passes",
    "replay": "ask a recorded or published trace again of any OpenAI-compatible server",
    "replay-op": "run an operator call that --check-ops saved, and compare it with the oracle",
    "regress": "whether a chip's answers and speed got worse since they were accepted",
    "scan": "what more requests at once gain, and what saturates where they gain nothing",
    "diagnose": "what keeps a running server from being faster, and what to do about it",
    "tune": "which flags serve a trace best on a chip, measured one variable at a time",
    "bisect": "which operator makes a chip's text differ from another chip's",
    "build": "compile a chip's kernels against the vendor's SDK, and tell what is wrong with it",
    "env": "print the variables that a chip's vendor SDK needs in a shell",
    "demo": "fetch the demo model into the cache",
    "sim": "make a simulated vendor SDK, to run its chip without a card",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 done, 1 failed, 2 asked for something impossible.

    130: Ctrl-C; `serve` and `router` end with 0 then, and after SIGTERM, whenever that comes. 141:
    the reader of standard output has left. argv: None for those of this process, which then is the
    command's.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and words[:1] in (["serve"], ["router"]):
        take_signals()
        if words[0] == "serve":
            collecting.rest()  # until all is imported, see server/run.py
    _open_standard_files()
    try:
        return _run_told(words)
    except KeyboardInterrupt:
        return 130
    finally:
        let_go()


def _run_told(words: list[str]) -> int:
    try:
        try:
            return _obey(words)
        finally:
            from anychip.cli.output import flush  # with flags: late, for `serve` starts a process

            flush()
    except Exception as error:
        # A class of our own carries a text for users; any other is a bug and keeps its traceback.
        if not type(error).__module__.startswith("anychip."):
            raise
        from anychip.cli.output import tell

        return tell(error)


def usage() -> str:
    """The commands, one line each."""
    lines = [f"  {name:10} {text}" for name, text in COMMANDS.items()]
    head = "usage: anychip COMMAND [FLAG ...]\n\ncommands:"
    tail = "\nanychip COMMAND --help lists the flags; anychip --version tells the version."
    return "\n".join([head, *lines, tail])


def _open_standard_files() -> None:
    """Where one was closed, the next file or socket would get its number, and be printed into."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _obey(words: list[str]) -> int:
    if words and words[0] not in ("-h", "--help", "help", "--version"):
        return _run(words[0], words[1:])
    from anychip.cli.output import say

    if not words or words[0] in ("-h", "--help", "help"):
        say(usage())
        return 0 if words else 2
    from importlib import metadata  # imports much, for this alone

    say(f"anychip {metadata.version('anychip')}")
    return 0


def _run(command: str, argv: Sequence[str]) -> int:
    if command not in COMMANDS:
        from anychip.config import ConfigError
        from anychip.refusal import near

        close = near(command, COMMANDS)
        hint = f"the nearest is {close!r}" if close else f"there are {', '.join(COMMANDS)}"
        raise ConfigError(f"there is no command {command!r}; {hint}; see --help")
    module = command.replace("-", "_")
    return int(import_module(f"anychip.cli.{module}").run(argv))


if __name__ == "__main__":
    sys.exit(main())
