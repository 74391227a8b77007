"""Counter-based noise: the same uniform for the same draw on every chip and after a retraction.

Philox4x32-10 after Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC'11, section 3.3. The key is the request's seed (64 bits, two's complement). The counter's low
half is the output position divided by four, its high half the draw; the position modulo four
picks one of the block's four words.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_ROUNDS = 10
_BLOCK = 4

Words = tuple[int, int, int, int]


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Encrypt a counter of four 32-bit words under a key of two; ten rounds."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0 = _MULTIPLIER_0 * c0
        p1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def _halves(value: int) -> tuple[int, int]:
    return value & _MASK, (value >> 32) & _MASK


def _block(seed: int, index: int, draw: int) -> Words:
    return philox4x32((*_halves(index), *_halves(draw)), _halves(seed))


def _unit(word: int) -> float:
    # 24 bits: exact in float32, so a chip that samples in float32 sees the same number.
    return (word >> 8) * 2.0**-24


def uniform(seed: int, position: int, draw: int) -> float:
    """Uniform in [0, 1), a multiple of 2**-24, for one output position (from 0) of one draw."""
    return _unit(_block(seed, position // _BLOCK, draw)[position % _BLOCK])


class NoiseStream:
    """`uniform` of one request; keeps the block in use, so three of four draws cost nothing."""

    __slots__ = ("_draw", "_index", "_seed", "_words")

    def __init__(self, seed: int, draw: int) -> None:
        self._seed = seed
        self._draw = draw
        self._index = -1
        self._words: Words = (0, 0, 0, 0)

    def at(self, position: int) -> float:
        """Return `uniform(seed, position, draw)`."""
        index = position // _BLOCK
        if index != self._index:
            self._index = index
            self._words = _block(self._seed, index, self._draw)
        return _unit(self._words[position % _BLOCK])
