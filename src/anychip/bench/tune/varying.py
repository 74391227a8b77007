"""Which flags are varied, and over which values: what the user asked for, checked as flags are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from anychip.config import ConfigError, ServeConfig
from anychip.flags import Setting, settings_of, value_of
from anychip.refusal import refusal

from .plan import Variable, powers

RUNNING, CHUNK = "max_running_requests", "chunked_prefill_size"
CHUNKS = ("512", "1024")
"""Always among the candidates."""

_FIXED_GROUPS = (
    "files and logging",
    "record and replay",
    "checks",
    "test hooks",
    "logs and traces",
)
_SAME_MODEL = "every run has the same model"
_OWN = "tune starts its servers itself"
_FIXED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "model_path",
            "model_source",
            "revision",
            "download_dir",
            "tokenizer_path",
            "load_format",
            "chat_template",
            "served_model_name",
        ),
        _SAME_MODEL,
    ),
    "backend": "every run has the same chip; tune each one, and compare with --compare",
    "device_index": "every run has the same device",
    **dict.fromkeys(
        (
            "host",
            "port",
            "api_key_file",
            "ssl_certfile",
            "ssl_keyfile",
            "ssl_ca_certs",
            "random_seed",
        ),
        _OWN,
    ),
}

NO_TENSOR_PARALLEL = (
    "--tp-size: not varied: tensor parallelism is not there yet, one device serves the model"
)


def flag_of(field: str) -> str:
    """The spelling that messages use."""
    return "--" + field.replace("_", "-")


def asked_values(asked: Mapping[str, str], config: ServeConfig) -> dict[str, tuple[str, ...]]:
    """field -> its values as text, each checked alone and with the rest of the configuration.

    asked: `--vary` as it was given, flag -> values with commas. Raises ConfigError.
    """
    known = {key: setting for setting in settings_of(ServeConfig) for key in setting.flag.keys}
    found: dict[str, tuple[str, ...]] = {}
    for name, text in asked.items():
        key = name.removeprefix("--").replace("-", "_")
        if key not in known:
            ours = [flag_of(field) for field in known]
            raise ConfigError(f"--vary: {refusal(flag_of(key), ours)}")
        setting = known[key]
        _check_varied(setting)
        if setting.field in found:
            raise ConfigError(f"--vary: {flag_of(setting.field)} is given twice")
        found[setting.field] = _checked(setting, text, config)
    return found


def _check_varied(setting: Setting) -> None:
    flag = setting.flag
    reason = _FIXED.get(setting.field, "")
    if not reason and (flag.group in _FIXED_GROUPS or flag.secret or not flag.names):
        reason = "it has nothing to do with speed"
    if not reason and setting.repeated:
        reason = "it takes NAME=VALUE pairs; give one set of them, and tune again with another"
    if reason:
        raise ConfigError(f"--vary: {flag_of(setting.field)} cannot be varied: {reason}")


def _checked(setting: Setting, text: str, config: ServeConfig) -> tuple[str, ...]:
    where = f"--vary {flag_of(setting.field)}"
    values = []
    for part in (part.strip() for part in text.split(",")):
        value = value_of(setting, part, where)
        if value not in values:
            values.append(value)
        try:
            dataclasses.replace(config, **{setting.field: value})
        except ConfigError as error:
            raise ConfigError(f"{where}={part}: {error}") from error
    return tuple(_text(value) for value in values)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def variables(
    asked: Mapping[str, tuple[str, ...]],
    config: ServeConfig,
    window: int,
    resolved: Mapping[str, int],
) -> tuple[Variable, ...]:
    """The two that are always varied, then the others that were asked for; each without the value
    that the base has.

    window: requests that fit at once. resolved: field -> what the engine chooses where the user
    leaves it open. Raises ConfigError where a flag that was asked for has one value alone.
    """
    candidates: dict[str, Sequence[str]] = {
        RUNNING: [str(value) for value in powers(window, resolved[RUNNING])],
        CHUNK: sorted({*CHUNKS, *asked.get(CHUNK, ())}, key=int),
        **{field: values for field, values in asked.items() if field != CHUNK},
    }
    found = []
    for field, values in candidates.items():
        given: Any = getattr(config, field)
        base = resolved.get(field, given)
        shown = "default" if base is None else _text(base)
        others = tuple(value for value in values if value != shown)
        if field in asked and not others:
            raise ConfigError(
                f"--vary {flag_of(field)}={','.join(values)}: it is {shown} already, so there is"
                " nothing to compare; name another value"
            )
        found.append(Variable(flag=flag_of(field), base=shown, values=others))
    return tuple(found)
