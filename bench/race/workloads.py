"""The five workloads of the race: prompts of token ids, answers of a fixed length.

Lengths come from a fixed seed, so that every repeat has the same work. Contents change with the
repeat, so that nothing but W3's shared prefix can be found in a cache.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

LOWEST, HIGHEST = 1000, 20000
"""Token ids of prompts: ordinary word pieces, no special tokens."""

LENGTH_SEED = 20251130
STREAMS = (1, 2, 4, 8, 16, 32, 64)
"""Streams at once in W5."""

TITLES = {
    "W1": "one stream, 128 in, 128 out",
    "W2": "32 at once, 128 to 512 in, 64 to 128 out",
    "W3": "32 requests of a shared prefix of 1,024 and 64 of their own, 32 out, 8 at a time",
    "W4": "one prompt of 4,096, 1 out",
    "W5": "1, 2, 4 … 64 streams at once, 64 in, 64 out",
}


@dataclass(frozen=True)
class Job:
    """One request: its prompt, and how many tokens it is answered with."""

    prompt: tuple[int, ...]
    length: int


@dataclass(frozen=True)
class Batch:
    """Requests of which `at_once` are under way. label: the workload, and in W5 the streams."""

    label: str
    jobs: tuple[Job, ...]
    at_once: int

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(job.prompt) for job in self.jobs)

    @property
    def asked(self) -> int:
        """Tokens of all answers."""
        return sum(job.length for job in self.jobs)


class _Shape:
    """Sizes of the race, or smaller ones to try the bench itself. contents: draws token ids."""

    def __init__(self, name: str, repeat: int, shrink: int) -> None:
        self.contents = random.Random(f"{name} {repeat}")
        self.lengths = random.Random(LENGTH_SEED)
        self._shrink = shrink

    def small(self, size: int) -> int:
        return max(1, size // self._shrink)

    def prompt(self, length: int) -> tuple[int, ...]:
        draw = self.contents.randrange
        return tuple(draw(LOWEST, HIGHEST) for _ in range(self.small(length)))

    def job(self, prompt: int, answer: int) -> Job:
        return Job(self.prompt(prompt), self.small(answer))

    def drawn(self, least: int, most: int) -> int:
        return self.lengths.randint(least, most)


def batches(name: str, repeat: int, shrink: int = 1) -> list[Batch]:
    """The batches of a workload, to be run one after another. shrink: divides lengths and counts,
    to try the bench itself. Raises KeyError for an unknown name."""
    shape = _Shape(name, repeat, shrink)
    return {"W1": _one, "W2": _mixed, "W3": _shared_prefix, "W4": _long, "W5": _streams}[name](
        shape
    )


def warm_up(shrink: int = 1) -> Batch:
    """What a server is given before it is measured: four requests at once."""
    shape = _Shape("warm-up", 0, shrink)
    return Batch("warm-up", tuple(shape.job(100, 8) for _ in range(4)), 4)


def _one(shape: _Shape) -> list[Batch]:
    return [Batch("W1", (shape.job(128, 128),), 1)]


def _mixed(shape: _Shape) -> list[Batch]:
    count = shape.small(32)
    sizes = [(shape.drawn(128, 512), shape.drawn(64, 128)) for _ in range(count)]
    return [Batch("W2", tuple(shape.job(*size) for size in sizes), count)]


def _shared_prefix(shape: _Shape) -> list[Batch]:
    prefix = shape.prompt(1024)
    own = [shape.job(64, 32) for _ in range(shape.small(32))]
    jobs = tuple(Job(prefix + job.prompt, job.length) for job in own)
    return [Batch("W3", jobs, shape.small(8))]


def _long(shape: _Shape) -> list[Batch]:
    return [Batch("W4", (shape.job(4096, 1),), 1)]


def _streams(shape: _Shape) -> list[Batch]:
    counts = sorted({shape.small(count) for count in STREAMS})
    return [
        Batch(f"W5-{count}", tuple(shape.job(64, 64) for _ in range(count)), count)
        for count in counts
    ]
