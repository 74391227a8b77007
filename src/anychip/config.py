"""The frozen configuration of one server: argv > environment > YAML > default.

Nothing else in the package reads settings from argv or os.environ. `settings.py` declares what can
be set: the same declaration gives the parser, the help line, the YAML key and the environment
variable.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from anychip.flags import ConfigError, FlagParser, Setting, add_flags, settings_of, value_of
from anychip.refusal import nearest, refusal, sglang_reason
from anychip.settings import RouterConfig, ServeConfig, user_path

__all__ = [
    "ConfigError",
    "FlagParser",
    "RouterConfig",
    "ServeConfig",
    "bare_environment",
    "from_keywords",
    "own_values",
    "parse",
    "parse_router",
    "read_config",
    "serve_parser",
]

ENV_PREFIX = "ANYCHIP_"

# Kubernetes sets these for each Service whose name begins with "anychip"; nobody typed them.
_SERVICE_LINK = re.compile(r"(.+_)?(SERVICE_(HOST|PORT)(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")

_COMMANDS = (ServeConfig, RouterConfig)
"""Whose variables one environment may hold together."""

OFFLINE = ("model", "chip", "memory", "schedule", "files and logging")
"""Groups of settings that have a meaning without a server."""

CHECKED = (*OFFLINE, "checks")
"""The same for commands that run steps, which can be checked."""

HTTP_ALONE = (
    "host",
    "port",
    "api_key",
    "api_key_file",
    "admin_api_key",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_keyfile_password",
    "ssl_ca_certs",
    "max_request_bytes",
    "max_concurrent_requests",
    "enable_metrics",
    "metrics_alias",
    "operator_timing_interval",
    "telemetry_interval",
    "shutdown_timeout",
    "record",
    "record_privacy",
    "record_max_bytes",
    "record_keep",
    "allow_exact_replay",
    "log_format",
    "access_log",
    "otlp_traces_endpoint",
    "otlp_service_name",
    "trace_sample",
    "profile_dir",
)
"""Fields that have a meaning over HTTP alone; `anychip.Engine` refuses them."""


def read_config(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> ServeConfig:
    """The configuration that flags, environment and YAML file ask for.

    argv: without the program's name. environ: the process's own where None.
    Raises ConfigError.
    """
    return parse(serve_parser("anychip serve"), argv, environ)[0]


def serve_parser(
    prog: str, description: str = "", groups: Collection[str] | None = None
) -> FlagParser:
    """A parser of every setting, or of those in some groups for a command that obeys no others."""
    parser = FlagParser(prog, description)
    add_flags(parser, ServeConfig, groups)
    return parser


def parse(
    parser: FlagParser,
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> tuple[ServeConfig, argparse.Namespace]:
    """The configuration, and the command's own arguments that were added to the parser.

    defaults: fields that this command begins with in another way. Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    namespace = _parsed(parser, argv)
    settings = tuple(settings_of(ServeConfig))
    typed = _from_argv(settings, namespace)
    return _merged(settings, typed, environ, defaults or {}), namespace


def parse_router(
    parser: FlagParser, argv: Sequence[str], environ: Mapping[str, str] | None = None
) -> RouterConfig:
    """The configuration of a router: argv > environment > YAML > default. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    settings = tuple(settings_of(RouterConfig))
    typed = _from_argv(settings, _parsed(parser, argv))
    exported = _from_environ(settings, environ)
    file = typed.get("config_file") or exported.get("config_file")
    from_file = _from_file(settings, str(file)) if file else {}
    return RouterConfig(**{**from_file, **exported, **typed})


def _parsed(parser: FlagParser, argv: Sequence[str]) -> argparse.Namespace:
    namespace, rest = parser.parse_known_args(list(argv))
    if rest:
        raise ConfigError(_unknown_argument(parser, rest))
    return namespace


def from_keywords(
    given: Mapping[str, object], caller: str, environ: Mapping[str, str] | None = None
) -> ServeConfig:
    """The configuration that keywords ask for: flags of `anychip serve`, "_" for "-".

    They win over environment and YAML file, as flags do. caller: who is told about in refusals.
    Raises ConfigError: also for what has a meaning over HTTP alone.
    """
    settings = tuple(settings_of(ServeConfig))
    by_key = _by_key(settings) | {setting.field: setting for setting in settings}
    typed: dict[str, Any] = {}
    for name, raw in given.items():
        if name not in by_key:
            raise ConfigError(f"{caller}: {_unknown_keyword(name, by_key)}")
        if by_key[name].field in HTTP_ALONE:
            raise ConfigError(f"{caller}: {name} is for `anychip serve`: nothing listens here")
        if raw is not None:
            _put(typed, by_key, name, raw, f"{caller}: {name}")
    return _merged(settings, typed, os.environ if environ is None else environ, {})


def _unknown_keyword(name: str, known: Collection[str]) -> str:
    reason = sglang_reason("--" + name.replace("_", "-"))
    if reason:
        return f"{name} is a flag of SGLang that AnyChip does not have: {reason}"
    return f"there is no setting {name!r}; the nearest is {nearest(name, known)!r}"


def _merged(
    settings: Sequence[Setting],
    typed: Mapping[str, Any],
    environ: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> ServeConfig:
    exported = _from_environ(settings, environ)
    file = typed.get("config_file") or exported.get("config_file")
    from_file = _from_file(settings, str(file)) if file else {}
    base = {"cache_dir": _default_cache(environ), **_default_hub(environ), **defaults}
    return ServeConfig(**{**base, **from_file, **exported, **typed})


def _default_cache(environ: Mapping[str, str]) -> str:
    """The folder of the XDG base directory specification, which ignores relative paths."""
    base = environ.get("XDG_CACHE_HOME", "")
    return str(Path(base) / "anychip") if base.startswith("/") else "~/.cache/anychip"


def _default_hub(environ: Mapping[str, str]) -> dict[str, str]:
    """The hub that users of SGLang and vLLM choose by these variables."""
    for name in ("SGLANG_USE_MODELSCOPE", "VLLM_USE_MODELSCOPE"):
        if environ.get(name, "").strip().lower() in ("1", "true", "yes", "on"):
            return {"model_source": "modelscope"}
    return {}


def _unknown_argument(parser: FlagParser, rest: Sequence[str]) -> str:
    served = {name for setting in settings_of(ServeConfig) for name in setting.flag.names}
    for word in rest:
        name = word.partition("=")[0]
        if name in served:
            return f"{name} is a flag of `anychip serve`; {parser.prog} has no use for it"
        if word.startswith("-"):
            return refusal(name, parser.flag_names())
    pairs = " or ".join(parser.pair_flags()) if "=" in rest[0] else ""
    hint = f"; one pair after each {pairs}" if pairs else ""
    return f"{rest[0]!r} belongs to no flag{hint} (see {parser.prog} --help)"


def _from_argv(settings: Sequence[Setting], namespace: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for setting in settings:
        raw = getattr(namespace, setting.field, None)
        if raw is not None:
            found[setting.field] = value_of(setting, raw, setting.flag.names[0])
    return found


def _from_environ(settings: Sequence[Setting], environ: Mapping[str, str]) -> dict[str, Any]:
    """Values of ANYCHIP_*; an empty one counts as not set, as compose files write it.

    One environment often is for servers and routers: what the other of both knows may be set.
    """
    found: dict[str, Any] = {}
    by_key = _by_variable(settings)
    known = {key for one in _COMMANDS for key in _by_variable(tuple(settings_of(one)))}
    for name, raw in sorted(environ.items()):
        if name.startswith(ENV_PREFIX) and raw and not _is_service_link(name, raw):
            key = name.removeprefix(ENV_PREFIX).lower()
            if key in by_key or key not in known:
                _put(found, by_key, key, raw, name)
    return found


def _by_variable(settings: Sequence[Setting]) -> dict[str, Setting]:
    """By the tails of their variables; what only tests set has no flag."""
    hooks = {one.flag.env.removeprefix(ENV_PREFIX).lower(): one for one in settings if one.flag.env}
    return {**_by_key(settings), **hooks}


def _is_service_link(name: str, raw: str) -> bool:
    tail = name.removeprefix(ENV_PREFIX)
    return raw.startswith("tcp://") or bool(_SERVICE_LINK.fullmatch(tail))


def _from_file(settings: Sequence[Setting], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    by_key = _by_key(settings)
    for key, raw in _read_yaml(path).items():
        where = f"{key} in {path}"
        if not isinstance(key, str):
            raise ConfigError(f"{where}: a key is a flag's name")
        name = key.replace("-", "_")
        if name == "config":
            raise ConfigError(f"{where}: a file cannot name another; use --config once")
        if raw is not None:
            _put(found, by_key, name, raw, where)
    return found


def _read_yaml(path: str) -> dict[Any, Any]:
    import yaml  # noqa: PLC0415 (only a server with a file needs it)

    try:
        document = yaml.safe_load(user_path(path, "--config").read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is not YAML: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"--config: {path} must hold `flag: value` lines")
    return document


def _by_key(settings: Sequence[Setting]) -> dict[str, Setting]:
    return {key: setting for setting in settings for key in setting.flag.keys}


def _put(
    found: dict[str, Any], by_key: Mapping[str, Setting], key: str, raw: object, where: str
) -> None:
    setting = by_key.get(key)
    if setting is None:
        ours = ["--" + name.replace("_", "-") for name in by_key]
        raise ConfigError(f"{where}: {refusal('--' + key.replace('_', '-'), ours)}")
    if setting.field in found:
        raise ConfigError(f"{where}: {setting.flag.names[0]} is set twice, by another spelling too")
    found[setting.field] = value_of(setting, raw, where)


def bare_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without settings of ours: for a process whose flags say all, test hooks
    included. environ: the process's own where None."""
    environ = os.environ if environ is None else environ
    return {name: value for name, value in environ.items() if not name.startswith(ENV_PREFIX)}


def own_values(struct: type, namespace: argparse.Namespace) -> dict[str, Any]:
    """Checked values of a command's own flags, where given: the fields of `struct`.

    Raises ConfigError.
    """
    return _from_argv(tuple(settings_of(struct)), namespace)
