"""`anychip demo`: fetches the demo model, and what other commands do without --model-path."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from anychip.cli.output import say
from anychip.config import FlagParser, ServeConfig, parse, serve_parser


def add_arguments() -> FlagParser:
    """The parser of this command; of the settings, it obeys --cache-dir."""
    return serve_parser(
        "anychip demo",
        "Fetch the demo model (SmolLM2-135M-Instruct, 98 MB) into --cache-dir; print its path.",
        ("files and logging",),
    )


def run(argv: Sequence[str]) -> int:
    """Fetch the model unless it is there, and print where it is."""
    config, _ = parse(add_arguments(), argv)
    say(str(fetch(config.cache_path)))
    return 0


def with_demo_model(config: ServeConfig) -> ServeConfig:
    """The same configuration, with the demo model where no model is named."""
    if config.model_path is not None:
        return config
    return dataclasses.replace(config, model_path=str(fetch(config.cache_path)))


def fetch(cache: Path) -> Path:
    """The demo model's file, fetched with a progress bar on standard error where it is missing."""
    from anychip.model.demo import cached_model, demo_model_path

    found = cached_model(cache)
    if found is not None:
        return found
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("demo model"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    print(f"fetching the demo model into {cache} (once)", file=sys.stderr)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("fetch", total=None)
        return demo_model_path(
            cache, lambda done, total: bar.update(task, completed=done, total=total)
        )
