"""The build layer of a chip that need not open, and the options that it is asked with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from anychip.config import ConfigError, ServeConfig

if TYPE_CHECKING:
    from anychip.contract.build import Build
    from anychip.contract.registration import Chip

FLAGS = ("device_index", "chip_option", "cache_dir", "build_dir")
"""Settings of commands whose CHIP stands without a flag."""


def chip_named(name: str) -> type[Chip]:
    """Import a chip. Raises ConfigError where none of that name is installed, ContractError where
    it cannot be imported."""
    from anychip.contract.discovery import chip_names, load_chip

    if name not in chip_names():
        offer = ", ".join(chip_names()) or "none"
        raise ConfigError(f"no chip {name!r} is installed; installed are: {offer}")
    return load_chip(name)


@contextmanager
def build_layer(cls: type[Chip], config: ServeConfig) -> Iterator[Build]:
    """The chip's toolchain; of a chip without one, the build layer of its opened device.

    Raises ContractError where options or device are wrong, ChipError where the chip does not open.
    """
    from anychip.contract.discovery import open_chip
    from anychip.contract.layer import empty_slots
    from anychip.contract.registration import read_options
    from anychip.run.plan_run import chip_options

    options = chip_options(config)
    if "toolchain" not in empty_slots(cls):
        yield cls.toolchain(read_options(cls, options))
        return
    chip = open_chip(config.backend, config.device_index, options)
    try:
        yield chip.build
    finally:
        chip.close()


def told_options(cls: type[Chip], config: ServeConfig) -> list[str]:
    """Each option that is given, with where its value is from."""
    from anychip.contract.registration import variables_of
    from anychip.contract.remembered import record_of
    from anychip.run.plan_run import chip_options

    names = {option.name: option.variable for option in cls.options}
    kept = f"kept in {record_of(config.build_path, cls.name)}"
    sources = dict.fromkeys(chip_options(config), kept)
    sources.pop("build_dir", None)
    sources |= {name: names[name] for name in variables_of(cls)}
    sources |= dict.fromkeys(config.chip_option, "as typed")
    values = {**variables_of(cls), **chip_options(config)}
    return [f"{name}={values[name]} ({source})" for name, source in sources.items()]
