"""The generator equals its published one, and the noise is uniform, in order and repeatable."""

from __future__ import annotations

from itertools import pairwise

import pytest

from anychip.schedule.noise import NoiseStream, philox4x32, uniform

# Random123's kat_vectors, philox4x32 with 10 rounds.
KNOWN_ANSWERS = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter, key, answer):
    assert philox4x32(counter, key) == answer


def test_the_first_uniforms_are_the_blocks_words():
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [uniform(0, at, 0) for at in range(4)] == [(w >> 8) / 2**24 for w in words]


def test_a_stream_equals_the_function_in_any_order():
    stream = NoiseStream(12345, 3)
    for position in [0, 1, 2, 3, 4, 9, 2, 1000, 3, 3]:
        assert stream.at(position) == uniform(12345, position, 3)


def test_every_part_of_the_key_matters():
    values = {
        uniform(seed, position, draw)
        for seed in (0, 1, -1, 2**40, 2**63 - 1)
        for position in (0, 1, 4, 2**35)
        for draw in (0, 1, 2**33)
    }
    assert len(values) == 60


def test_uniformity_and_range():
    count, bins = 20_000, [0] * 20
    for position in range(count):
        value = uniform(7, position, 0)
        assert 0.0 <= value < 1.0
        assert (value * 2**24).is_integer()
        bins[int(value * 20)] += 1
    chi_square = sum((n - count / 20) ** 2 / (count / 20) for n in bins)
    assert chi_square < 43.8  # 19 degrees of freedom, one in a thousand


def test_neighbours_do_not_correlate():
    values = [uniform(seed, 0, 0) - 0.5 for seed in range(5000)]
    covariance = sum(a * b for a, b in pairwise(values)) / len(values)
    assert abs(covariance) < 4 / 12 / 5000**0.5
