"""`anychip chat`: a conversation in the terminal, with a model started here or behind a URL."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anychip.cli.chat_answers import Local
from anychip.cli.chat_session import COMMANDS, OURS, Session, as_value
from anychip.cli.chat_terminal import Terminal
from anychip.cli.local import with_model
from anychip.config import (
    OFFLINE,
    ConfigError,
    FlagParser,
    ServeConfig,
    own_values,
    parse,
    serve_parser,
)
from anychip.flags import Flag, add_flags, declared, settings_of
from anychip.settings import user_path

if TYPE_CHECKING:
    from anychip.cli.chat_remote import Remote

_GROUP = "chat"
_WITH_URL = ("model_path", "api_key", "log_level", "config_file")
"""Settings that have a meaning with --url."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """Whom to talk to, and how it begins."""

    url: str = declared(
        "",
        Flag(
            ("--url",),
            _GROUP,
            "talk to this OpenAI-compatible server; --model is a name there then",
            "URL",
        ),
    )
    api_key: str = declared(
        "",
        Flag(("--api-key",), _GROUP, "key for --url (prefer ANYCHIP_API_KEY)", "KEY", secret=True),
    )
    system: str = declared("", Flag(("--system",), _GROUP, "system message to begin with", "TEXT"))
    params: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(
                ("--params",),
                _GROUP,
                "a field of each request, repeatable [temperature=0, with --url none]",
                "K=V",
            )
        },
    )
    history: str = declared(
        "", Flag(("--history",), _GROUP, "keep what you type in this file [in none]", "FILE")
    )


def add_arguments() -> FlagParser:
    """The parser of this command."""
    parser = serve_parser(
        "anychip chat",
        "Talk to a model in the terminal: one that is started here (the demo model without"
        " --model-path), or any OpenAI-compatible server (--url). From a pipe each line is a"
        " message. Commands: " + " ".join(COMMANDS) + ". Exit code 1 where a piped message got no"
        " answer. The log begins at warnings.",
        (*OFFLINE, "output"),
    )
    parser.show_examples(
        "anychip chat",
        "anychip chat --model-path DIR_OR_GGUF --system 'Answer in one sentence.'",
        "anychip chat --params temperature=0.7 --params max_tokens=200 --params regex='[A-Z ]+'",
        "anychip chat --url http://127.0.0.1:30000",
        "ANYCHIP_API_KEY=KEY anychip chat --url https://HOST/v1 --model NAME",
        "printf 'My name is Ada.\\nWhat is my name?\\n' | anychip chat",
    )
    add_flags(parser, ChatOptions)
    return parser


def run(argv: Sequence[str]) -> int:
    """Talk until the end; 0, where no error ended it."""
    config, namespace = parse(add_arguments(), argv, defaults={"log_level": "warning"})
    options = ChatOptions(**own_values(ChatOptions, namespace))
    params = {name: _value(name, text) for name, text in options.params.items()}
    level = config.log_level.upper()
    _set_up_log(level)
    history = user_path(options.history, "--history") if options.history else None
    if options.url:
        _refuse_idle(namespace)
        remote = _remote(options.url, config.api_key, namespace.model_path)
        _talk(remote, history, options.system, params)
        return 0
    if options.api_key:
        raise ConfigError("--api-key: there is no server to send it to; add --url or leave it out")
    config = with_model(config)
    from anychip.offline import Engine

    with Engine(config) as engine:
        _talk(Local(engine), history, options.system, {"temperature": 0, **params})
    return 0


def _set_up_log(level: str) -> None:
    """Beside the log of that level, a terminal shows how much of the model is loaded."""
    from anychip.engine.passing import LOGGER, LogWriter

    logging.basicConfig(level=level, handlers=[LogWriter()], format="%(levelname)s %(message)s")
    if sys.stderr is not None and sys.stderr.isatty():
        logging.getLogger(LOGGER).setLevel(logging.INFO)


def _talk(
    source: Local | Remote, history: Path | None, system: str, params: dict[str, Any]
) -> None:
    terminal = Terminal(history, COMMANDS)
    try:
        Session(source, terminal, system, params).run()
    finally:
        terminal.close()


def _value(name: str, text: str) -> Any:
    if name in OURS:
        raise ConfigError(f"--params: {name} is set by the chat itself")
    return as_value(text)


def _remote(url: str, key: str | None, model: str | None) -> Remote:
    from anychip.cli.chat_remote import Remote

    remote = Remote(url, key, model)
    if remote.shows_key:
        logging.getLogger("anychip.chat").warning("the key travels unencrypted: use https")
    return remote


def _refuse_idle(namespace: argparse.Namespace) -> None:
    """ConfigError for a setting of an engine, of which there is none here."""
    for setting in settings_of(ServeConfig):
        given = getattr(namespace, setting.field, None) is not None
        if given and setting.field not in _WITH_URL:
            name = setting.flag.names[0]
            raise ConfigError(f"{name}: the model runs at --url, nothing is started here")
