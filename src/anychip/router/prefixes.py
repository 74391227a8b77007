"""Which beginnings of prompts each worker was given, without asking it.

A prompt is cut into blocks of equal size. The chain of a prompt has one number a block, which
stands for that block and all before it, so equal numbers are equal beginnings. Each worker has the
numbers that it was given, the oldest forgotten first. Invariant: a chain is kept from its end to
its beginning, so a number is never older than those behind it, and what is known of a chain is
always its beginning. Therefore the length of a match is found by halving.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from .asking import BYTES_PER_TOKEN

BLOCK = 128
"""Bytes: 32 tokens as ids, and about as many as text."""
MOST_BLOCKS = 1 << 16
"""Kept for each worker: about two million tokens, which is some 10 MB."""

Chain = Sequence[int]


def chain_of(model: str | None, prompt: bytes) -> Chain:
    """The numbers of a prompt's whole blocks. Caches of two models share nothing."""
    step = blake2b((model or "").encode("utf-8", "replace"), digest_size=8).digest()
    found = []
    for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
        step = blake2b(prompt[start : start + BLOCK], digest_size=8, key=step).digest()
        found.append(int.from_bytes(step, "little"))
    return found


def tokens_of(blocks: int) -> int:
    """What so many blocks are in tokens: exact for ids, an estimate for text."""
    return blocks * BLOCK // BYTES_PER_TOKEN


class Prefixes:
    """What the workers were given. most_blocks: of each, at least 1."""

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most = most_blocks
        self._of: dict[str, OrderedDict[int, None]] = {}

    def matched(self, name: str, chain: Chain) -> int:
        """How many blocks of the chain's beginning the worker was given and has not lost."""
        known = self._of.get(name)
        if not known:
            return 0
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] in known:
                low = middle
            else:
                high = middle - 1
        return low

    def keep(self, name: str, chain: Chain) -> None:
        """The worker is given this chain, as much of it as is kept of one worker."""
        known = self._of.setdefault(name, OrderedDict())
        for number in reversed(chain[: self._most]):
            known[number] = None
            known.move_to_end(number)
        while len(known) > self._most:
            known.popitem(last=False)

    def forget(self, name: str) -> None:
        """Its cache is empty."""
        self._of.pop(name, None)

    def blocks(self, name: str) -> int:
        """How many are kept of it."""
        return len(self._of.get(name, ()))

    def check(self, name: str, chain: Chain) -> list[str]:
        """What is wrong with what is known of a chain: it is no beginning."""
        known = self._of.get(name, OrderedDict())
        held = [number in known for number in chain]
        if held == sorted(held, reverse=True):
            return []
        return [f"{name}: holds {held.count(True)} blocks of a chain that are not its beginning"]
