"""What each model family needs, and which chip serves it: `anychip models`.

A family's needs are those of a tiny model of it, an entry of `cases/structures.yaml`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anychip.bench.regress_case_files import package_cases
from anychip.config import ServeConfig
from anychip.contract.discovery import open_chip
from anychip.model.config import ModelConfig
from anychip.model.families import FAMILIES, config_from_hf
from anychip.model.tiny_family import write_family
from anychip.run.coverage import coverage
from anychip.run.needs import needed_operators
from anychip.run.plan_run import chip_options

BASE = "llama"
"""The family whose operators every other one is compared with."""


@dataclass(frozen=True)
class FamilyLine:
    """A family. hf, gguf: what a checkpoint calls it, gguf "" where no GGUF file of it is read.

    operators: what its network calls, fused rungs unrolled. beyond: of them, those that Llama does
    not call. traits: what else sets it apart.
    """

    name: str
    title: str
    hf: str
    gguf: str
    operators: tuple[str, ...]
    beyond: tuple[str, ...]
    traits: tuple[str, ...]


@dataclass(frozen=True)
class FamilyOnChip:
    """How a chip serves a tiny model of a family: operators by who serves them."""

    name: str
    native: tuple[str, ...]
    composed: tuple[str, ...]
    host: tuple[str, ...]
    missing: tuple[str, ...]


def families() -> list[FamilyLine]:
    """Every family, in the order of `model/families`."""
    configs = {name: config_from_hf(settings) for name, settings in _settings().items()}
    base = set(needed_operators(configs[BASE]))
    return [_line(name, configs[name], base) for name in FAMILIES]


def families_on(config: ServeConfig, told: Callable[[str, int, int], None]) -> list[FamilyOnChip]:
    """Each family's tiny model recorded against the chip of `config`.

    told: called before each with its name, how many are done and how many there are. Raises what
    `coverage` raises.
    """
    # Before anything is told of its progress.
    open_chip(config.backend, config.device_index, chip_options(config)).close()
    found, settings = [], _settings()
    with tempfile.TemporaryDirectory(prefix="anychip-models-") as folder:
        for done, name in enumerate(FAMILIES):
            told(name, done, len(FAMILIES))
            path = write_family(Path(folder) / name, settings[name], "bfloat16")
            report = coverage(replace(config, model_path=str(path)))
            by = {k: tuple(r.op for r in report.rows if r.kind == k) for k in _KINDS}
            missing = tuple(str(op) for op in report.missing)
            once = {kind: tuple(dict.fromkeys(ops)) for kind, ops in by.items()}
            found.append(FamilyOnChip(name, **once, missing=missing))
    return found


_KINDS = ("native", "composed", "host")


def _settings() -> dict[str, dict[str, Any]]:
    """config.json of a tiny model of each family: the first structure that is one."""
    cases, found = package_cases(), dict[str, dict[str, Any]]()
    for name, structure in cases.structures.items():
        if structure.model is None:
            settings = dict(cases.settings(name))
            found.setdefault(config_from_hf(settings).architecture, settings)
    return found


def _line(name: str, config: ModelConfig, base: set[str]) -> FamilyLine:
    family, operators = FAMILIES[name], needed_operators(config)
    return FamilyLine(
        name=name,
        title=family.title,
        hf=family.hf_class,
        gguf=family.gguf,
        operators=operators,
        beyond=tuple(op for op in operators if op not in base),
        traits=tuple(_traits(config)),
    )


def _traits(config: ModelConfig) -> list[str]:
    """What no operator's name tells."""
    layers = [config.layer(i) for i in range(config.layers)]
    said = {
        "biases": config.attention_bias or config.mlp_bias,
        "windows": any(layer.window for layer in layers),
        "layers without rotation": any(layer.rope is None for layer in layers),
        "part of a head rotated": config.rope.rotary_dim < config.head_dim and not config.latent,
        "capped scores": config.attention_softcap > 0,
        "a latent cache": config.latent is not None,
        "a state for each sequence": config.delta is not None,
    }
    return [name for name, holds in said.items() if holds]
