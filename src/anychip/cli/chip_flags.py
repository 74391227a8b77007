"""The flags that name a chip, its device and options, for commands that take no model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from anychip.config import ServeConfig
from anychip.flags import FlagParser, add_flags

FIELDS = ("backend", "device_index", "chip_option", "cache_dir", "build_dir")


def add_chip_flags(parser: FlagParser, fields: Collection[str] = FIELDS) -> None:
    """Declare them, or some, as `anychip serve` does; `config.parse` then reads them so too."""
    chosen = [
        (item.name, item.type, _declaration(item))
        for item in dataclasses.fields(ServeConfig)
        if item.name in fields
    ]
    add_flags(parser, dataclasses.make_dataclass("ChipFlags", chosen))


def _declaration(item: dataclasses.Field[Any]) -> Any:
    default = None if item.default is dataclasses.MISSING else item.default
    return dataclasses.field(default=default, metadata=item.metadata)
