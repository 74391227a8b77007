"""What `anychip regress` runs: structure x format x length x way. The values are data: the files
of `bench/cases`, and a user's own; `regress_case_files.py` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Annotated, Any, Literal

import msgspec

DEMO = "demo"
"""In `Structure.model`: the model that is fetched."""

FILE = "file"
"""The format of a model that is there already: whatever it has."""

SetName = Literal["small", "full"]
SMALL: SetName = "small"
FULL: SetName = "full"
RAGGED = 5
"""Tokens by which each request of a batch is shorter than the one before it."""

LARGEST_PAGE = 128
"""No chip's pages are larger unless the user asks: memory is sized before the page is known."""

_LENGTH = re.compile(r"([1-9][0-9]{0,6})|(page|chunk|context)(?:([+-])([1-9][0-9]{0,5}))?")

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9._+-]{0,60}$")]
Settings = dict[str, Any]


class CasesError(ValueError):
    """A case that cannot be: the text names the file or the case, and the way out."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every run. context: positions of a written model. chunk: prompt tokens of a step where a
    prompt is cut. slots: requests at once."""

    context: Count
    chunk: Count
    slots: Count


class Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a prompt is computed. about: in words. tokens: new ones. requests: at once, each RAGGED
    tokens shorter.

    chunked: in chunks of `Sizes.chunk`. warm: a prompt that differs in the last token came before,
    so that whole pages are in the prefix cache. retract_every: steps after which a request that is
    being answered has to start again. scored: the probability of each prompt token is asked for.
    """

    about: str
    tokens: Count = 8
    requests: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    chunked: bool = False
    warm: bool = False
    retract_every: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    scored: bool = False


class Structure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model's shape. config: settings of config.json; `like` names the structure whose settings
    they change, None takes one away. gguf: metadata of its GGUF files beyond sizes and rotation.
    model: instead of all that, DEMO or the path of a folder or .gguf file."""

    about: str
    config: Settings = msgspec.field(default_factory=dict)
    gguf: Settings = msgspec.field(default_factory=dict)
    like: Name | None = None
    model: str | None = None


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All combinations of these. without: structures that "all" leaves out. formats: of the
    matrices; FILE alone for a `model`."""

    structures: list[Name] | Literal["all"]
    without: list[Name] = msgspec.field(default_factory=list)
    lengths: list[int | str]
    ways: list[Name] | Literal["all"]
    formats: list[Name] = msgspec.field(default_factory=lambda: [FILE])
    sets: list[SetName] = msgspec.field(default_factory=lambda: [SMALL, FULL])


@dataclass(frozen=True)
class Place:
    """What lengths are counted in, here: positions of a page, tokens of a chunk, of a sequence.

    hits: whether every whole page can be found again; not where layers keep a state, of which there
    are snapshots now and then.
    """

    page: int
    chunk: int
    context: int
    hits: bool = True


@dataclass(frozen=True)
class Length:
    """Prompt tokens: a number, or so many more than a page, a chunk or the context has."""

    text: str

    def __post_init__(self) -> None:
        if not _LENGTH.fullmatch(self.text):
            raise CasesError(
                f"length {self.text!r:.60} is none: a number from 1, or page, chunk or context, "
                "such as page-1 or chunk+1"
            )

    def tokens(self, place: Place, new: int) -> int:
        """new: tokens that follow; a prompt of the whole context leaves room for them."""
        found = _LENGTH.fullmatch(self.text)
        assert found is not None
        number, unit, sign, more = found.groups()
        if number:
            return int(number)
        base = {"page": place.page, "chunk": place.chunk, "context": place.context - new}[unit]
        return base + (int(f"{sign}{more}") if sign else 0)


@dataclass(frozen=True)
class Case:
    """One combination. model: structure and format."""

    structure: str
    format: str
    length: Length
    way: str
    how: Way

    @property
    def model(self) -> str:
        """What is loaded once for all its cases."""
        return f"{self.structure}-{self.format}"

    @property
    def key(self) -> str:
        """Its name in baselines and reports."""
        return f"{self.model}/{self.length.text}/{self.way}"

    def lengths(self, place: Place) -> tuple[int, ...]:
        """Prompt tokens of each request. Raises CasesError where there is no such prompt."""
        longest = self.length.tokens(place, self.how.tokens)
        if not 1 <= longest <= place.context - self.how.tokens:
            raise CasesError(
                f"case {self.key}: a prompt of {longest} tokens and {self.how.tokens} new ones do "
                f"not fit into {place.context} positions; give another length"
            )
        return tuple(max(1, longest - RAGGED * n) for n in range(self.how.requests))

    def positions(self, context: int, chunk: int) -> int:
        """Cache positions that its requests need at most, whatever the page size."""
        place = Place(LARGEST_PAGE, chunk, context)
        prompt = max(1, self.length.tokens(place, self.how.tokens))  # `lengths` refuses less
        longest = min(prompt + self.how.tokens, context)
        return self.how.requests * (longest + LARGEST_PAGE)


@dataclass(frozen=True)
class Cases:
    """What the files say: structures by name, and the cases of each set."""

    sizes: Sizes
    structures: Mapping[str, Structure]
    sets: Mapping[str, Sequence[Case]]

    def chosen(self, name: str, only: str | None) -> tuple[Case, ...]:
        """The cases of a set whose key fits the pattern `only`."""
        return tuple(c for c in self.sets[name] if only is None or fnmatchcase(c.key, only))

    def settings(self, name: str) -> Settings:
        """config.json of a structure, with what it takes over from others."""
        structure = self.structures[name]
        usual: Settings = {"max_position_embeddings": self.sizes.context}
        below = self.settings(structure.like) if structure.like else usual
        merged = {**below, **structure.config}
        return {key: value for key, value in merged.items() if value is not None}


def expand(grid: Grid, structures: Sequence[str], ways: Mapping[str, Way]) -> Iterator[Case]:
    """Every case of a grid, model by model. structures: what "all" stands for."""
    named = list(structures) if grid.structures == "all" else grid.structures
    named = [name for name in named if name not in grid.without]
    walked = list(ways) if grid.ways == "all" else grid.ways
    lengths = [Length(str(length)) for length in grid.lengths]
    for structure, format, length, way in product(named, grid.formats, lengths, walked):
        yield Case(structure, format, length, way, ways[way])
