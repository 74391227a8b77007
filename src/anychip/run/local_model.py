"""A configuration whose model lies here: hub names fetched, the demo model where none is named."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anychip.config import ConfigError, ServeConfig
from anychip.model.demo import demo_model_path
from anychip.model.hub.fetch import Watch, fetch
from anychip.model.hub.messages import SourceName, Wanted
from anychip.model.hub.name import HubName, parse_name

log = logging.getLogger("anychip.hub")

EVERY_S = 5.0
"""How often lines tell of a fetch, seconds."""

_SOURCES: dict[str, SourceName] = {"huggingface": "huggingface", "modelscope": "modelscope"}


class Lines:
    """Tells of a fetch in lines: at the start, then at most every `EVERY_S`, and at the end."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._begun: float | None = None
        self._last = self._before = 0.0

    def progress(self, name: str, done: int, total: int) -> None:
        """Bytes that are here, and bytes in all."""
        now = time.monotonic()
        if self._begun is None:
            self._begun, self._before, self._last = now, done, now
            self._say(f"fetching {name}: {(total - done) / 2**20:,.0f} MiB")
        elif done == total or now - self._last >= EVERY_S:
            self._last = now
            rate = (done - self._before) / 2**20 / max(now - self._begun, 1e-3)
            amounts = f"{done / 2**20:,.0f} of {total / 2**20:,.0f} MiB"
            self._say(f"  {name}: {amounts}, {rate:,.1f} MiB/s")

    def note(self, name: str, text: str) -> None:
        """Something that the user should know."""
        self._say(f"{name}: {text}")


def local_model(config: ServeConfig, watch: Watch | None = None) -> ServeConfig:
    """The same with `model_path` and `tokenizer_path` on this disk. A path that is here wins over a
    hub's model of that name, which is served under the name that was typed.

    watch: told how a fetch goes; the log without one. Raises ConfigError, DemoError, HubError.
    """
    watch = watch or Lines(log.info)
    if config.model_path is None:
        path = _demo(config)
        config = dataclasses.replace(config, model_path=str(path), revision=None)
    model, tokenizer = str(config.model_path), config.tokenizer_path
    name = hub_name(model)
    if name is not None:
        config = _fetched(config, name, watch)
    elif config.revision is not None:
        raise ConfigError(
            f"--revision: {model} is no model of a hub; leave it out, or name one as ORG/NAME"
        )
    named = None if tokenizer is None else hub_name(tokenizer)
    if name is None and named is None:
        _tell_idle(config, model, watch)
    if named is not None:
        path = fetch(_wanted(config, named, tokenizer=True), watch)
        config = dataclasses.replace(config, tokenizer_path=str(path))
    return dataclasses.replace(config, **_FETCHED)


_FETCHED: dict[str, Any] = {"download_dir": None, "model_source": "huggingface"}
"""Nothing is fetched twice: the same configuration may come here again."""


def _tell_idle(config: ServeConfig, model: str, watch: Watch) -> None:
    """What is said of a hub where none is asked. The source may be the environment's, for all that
    is started there, so it is told; a folder is refused with ConfigError."""
    if config.download_dir is not None:
        raise ConfigError(
            f"--download-dir: {model} is here already, so nothing is fetched into"
            f" {config.download_dir}; leave it out, or name a model of a hub as ORG/NAME"
        )
    if config.model_source != _FETCHED["model_source"]:
        watch.note(model, f"it is here already: {config.model_source} is not asked")


def hub_name(text: str) -> HubName | None:
    """The name of a hub's model; None for a path, above all for one that is here."""
    return None if Path(text).expanduser().exists() else parse_name(text)


def _demo(config: ServeConfig) -> Path:
    if config.revision is not None:
        raise ConfigError("--revision: no model is named; add --model-path ORG/NAME")
    return demo_model_path(config.cache_path)


def _fetched(config: ServeConfig, name: HubName, watch: Watch) -> ServeConfig:
    if config.revision is not None and name.revision not in (None, config.revision):
        raise ConfigError(
            f"--revision: {config.revision}, but --model-path says {name}; leave one out"
        )
    name = dataclasses.replace(name, revision=name.revision or config.revision)
    path = fetch(_wanted(config, name, tokenizer=False), watch)
    return dataclasses.replace(
        config,
        model_path=str(path),
        revision=None,
        served_model_name=config.served_model_name or config.model_path,
    )


def _wanted(config: ServeConfig, name: HubName, *, tokenizer: bool) -> Wanted:
    cache = None if config.download_dir is None else str(Path(config.download_dir).expanduser())
    return Wanted(
        _SOURCES[config.model_source],
        name.id,
        name.revision,
        name.file,
        load_format=config.load_format,
        cache_dir=cache,
        tokenizer=tokenizer,
    )
