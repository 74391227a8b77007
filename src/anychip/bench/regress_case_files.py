"""Reads the cases of `anychip regress`: YAML, checked in full before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml

from anychip.bench.regress_cases import (
    FILE,
    FULL,
    SMALL,
    Case,
    Cases,
    CasesError,
    Grid,
    Name,
    Sizes,
    Structure,
    Way,
    expand,
)
from anychip.contract.formats import PLAIN_FORMATS, is_quantized

MOST_BYTES = 1 << 20
FLOAT32_MAX = 3.4028234e38


class CaseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. sizes: of the package's alone, since stored figures rest on them."""

    sizes: Sizes | None = None
    ways: dict[Name, Way] = msgspec.field(default_factory=dict)
    structures: dict[Name, Structure] = msgspec.field(default_factory=dict)
    cases: list[Grid] = msgspec.field(default_factory=list)


def package_cases() -> Cases:
    """The files beside this one. Raises CasesError."""
    known = _package()
    return known.cases([grid for _, grid in known.grids])


def user_cases(path: Path) -> Cases:
    """The cases of a user's file alone, over the package's ways and structures and its own.

    Raises CasesError.
    """
    known, own = _package(), _read(path)
    if own.sizes is not None:
        raise CasesError(
            f"{path}: sizes: they are the package's; give lengths as numbers, or a structure its "
            "own max_position_embeddings"
        )
    known.add(str(path), own)
    grids = [grid for where, grid in known.grids if where == str(path)]
    if not grids:
        raise CasesError(f"{path}: it has no cases; list some under 'cases', see docs/regress.md")
    return known.cases(grids)


@dataclass
class _Known:
    """What the files said so far, each name with the file that it is from."""

    sizes: Sizes | None = None
    ways: dict[str, Way] = field(default_factory=dict)
    structures: dict[str, Structure] = field(default_factory=dict)
    grids: list[tuple[str, Grid]] = field(default_factory=list)
    _owner: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, where: str, file: CaseFile) -> None:
        """Take in a file. Raises CasesError where a name is taken."""
        self.sizes = file.sizes or self.sizes
        for kind, names in (("way", file.ways), ("structure", file.structures)):
            for name in names:
                owner = self._owner.setdefault((kind, name), where)
                if owner != where:
                    raise CasesError(f"{where}: {kind} {name} is in {owner} already; rename it")
        self.ways.update(file.ways)
        self.structures.update(file.structures)
        self.grids += [(where, grid) for grid in file.cases]
        for name, structure in file.structures.items():
            _check_structure(f"{where}: structure {name}", structure)

    def cases(self, chosen: list[Grid]) -> Cases:
        """The cases of some grids. Raises CasesError, also where a name stands for nothing."""
        if self.sizes is None:
            raise CasesError("the package's case files give no sizes")
        for name in self.structures:
            self._check_like(name)
        sets: dict[str, dict[str, Case]] = {SMALL: {}, FULL: {}}
        for where, grid in self.grids:
            if not any(grid is one for one in chosen):
                continue
            self._check_grid(where, grid)
            for case in self._expanded(where, grid):
                for name in grid.sets:
                    sets[name][case.key] = case
        ordered = {name: tuple(_by_model(found.values())) for name, found in sets.items()}
        return Cases(self.sizes, self.structures, ordered)

    def _expanded(self, where: str, grid: Grid) -> Iterator[Case]:
        written = [name for name, found in self.structures.items() if found.model is None]
        try:
            yield from expand(grid, written, self.ways)
        except CasesError as error:
            raise CasesError(f"{where}: {error}") from error

    def _check_grid(self, where: str, grid: Grid) -> None:
        named = [] if grid.structures == "all" else grid.structures
        walked = [] if grid.ways == "all" else grid.ways
        _check_names(f"{where}: structure", [*named, *grid.without], self.structures)
        _check_names(f"{where}: way", walked, self.ways)
        given = [name for name in named if self.structures[name].model is not None]
        if given and grid.formats != [FILE]:
            raise CasesError(
                f"{where}: structure {given[0]} is a model that has its formats: leave 'formats' "
                "out, in cases of its own"
            )
        if grid.structures == "all" or len(given) < len(named):
            _check_formats(where, grid)

    def _check_like(self, name: str) -> None:
        met = [name]
        while (like := self.structures[met[-1]].like) is not None:
            _check_names(f"structure {met[-1]}: like", [like], self.structures)
            if like in met:
                raise CasesError(f"structure {name} is like itself: {' -> '.join([*met, like])}")
            if self.structures[like].model is not None:
                raise CasesError(f"structure {name} is like {like}, which has no config")
            met.append(like)


def _package() -> _Known:
    known = _Known()
    folder = files("anychip.bench") / "cases"
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    for file in found:
        known.add(file.name, _parsed(file.read_text(encoding="utf-8"), file.name))
    return known


def _read(path: Path) -> CaseFile:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CasesError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CasesError(f"{path}: is no UTF-8 text") from error
    if len(text) > MOST_BYTES:
        raise CasesError(f"{path}: is longer than {MOST_BYTES} characters")
    return _parsed(text, str(path))


def _parsed(text: str, where: str) -> CaseFile:
    try:
        document = yaml.load(text, Loader=_Once)
        return msgspec.convert(document if document is not None else {}, CaseFile)
    except (yaml.YAMLError, RecursionError) as error:
        raise CasesError(f"{where}: is no YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise CasesError(f"{where}: {error}; docs/regress.md tells what goes where") from error
    except ValueError as error:  # PyYAML's own, of a date or a number that is none
        raise CasesError(f"{where}: a value cannot be read: {error}") from error


class _Once(yaml.SafeLoader):
    """Refuses a key that stands twice: the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As SafeLoader's, each key once."""
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r:.60} stands twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _check_structure(where: str, structure: Structure) -> None:
    from_config = bool(structure.config) or structure.like is not None
    if from_config == (structure.model is not None):
        raise CasesError(f"{where}: give either config (or like) or model")
    for key, value in structure.config.items():
        if not _is_json(value):
            raise CasesError(f"{where}: config: {key} is {value!r:.60}; config.json has no such")
    for key, value in structure.gguf.items():
        if not _is_metadata(value):
            raise CasesError(
                f"{where}: gguf: {key} is {value!r:.60}; a text, true or false, an integer of 32 "
                "bits, a number, or a list of one kind of them is needed"
            )


def _is_json(value: Any, depth: int = 32) -> bool:
    """YAML has dates, sets and bytes too, and lists that hold themselves."""
    if isinstance(value, list | dict):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return depth > 0 and all(_is_json(one, depth - 1) for one in inner)
    return value is None or isinstance(value, str | bool | int | float)


def _is_metadata(value: Any) -> bool:
    """Whether a GGUF file can be written with it."""
    several = isinstance(value, list) and len({type(one) for one in value}) < 2
    return all(map(_is_scalar, value)) if several else _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    if type(value) is int:
        return -(1 << 31) <= value < 1 << 31
    if type(value) is float:
        return not FLOAT32_MAX < abs(value) < math.inf
    return isinstance(value, str | bool)


def _check_names(what: str, names: list[str], known: Mapping[str, object]) -> None:
    for name in names:
        if name not in known:
            raise CasesError(f"{what} {name}: there is none; there are {', '.join(sorted(known))}")


def _check_formats(where: str, grid: Grid) -> None:
    for format in grid.formats:
        if format not in PLAIN_FORMATS and not is_quantized(format):
            raise CasesError(
                f"{where}: format {format} is none of a written model; such as "
                f"{', '.join(PLAIN_FORMATS)}, q8_0"
            )


def _by_model(cases: Any) -> Iterator[Case]:
    """Cases of one model together, models and cases in the order in which they were met."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.model, []).append(case)
    for group in groups.values():
        yield from group
