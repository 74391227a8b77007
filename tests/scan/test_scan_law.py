"""The universal scalability law, against data made from it."""

from __future__ import annotations

import numpy as np
import pytest

from anychip.bench.scan_law import Law, fit

LEVELS = (1, 2, 4, 8, 16, 32, 64)


def made(rate, contention, coherency, noise=0.0, seed=0):
    law = Law(rate=rate, contention=contention, coherency=coherency, error=0.0, levels=0)
    random = np.random.default_rng(seed)
    return [(n, law.at(n) * (1 + noise * random.standard_normal())) for n in LEVELS]


@pytest.mark.parametrize(
    ("rate", "contention", "coherency"),
    [(50.0, 0.05, 0.001), (3.0, 0.5, 0.0), (1000.0, 0.0, 0.01), (7.0, 0.0, 0.0)],
)
def test_exact_data_give_their_law_back(rate, contention, coherency):
    law = fit(made(rate, contention, coherency))
    assert law.rate == pytest.approx(rate)
    assert law.contention == pytest.approx(contention, abs=1e-9)
    assert law.coherency == pytest.approx(coherency, abs=1e-9)
    assert law.error < 1e-9 and law.levels == len(LEVELS)


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_two_percent_moves_it_little(seed):
    law = fit(made(50.0, 0.05, 0.001, noise=0.02, seed=seed))
    assert law.rate == pytest.approx(50.0, rel=0.1)
    assert law.contention == pytest.approx(0.05, abs=0.03)
    assert law.peak == pytest.approx(30.8, rel=0.3) and law.error < 0.08


def test_peak_and_ceiling():
    law = fit(made(50.0, 0.05, 0.001))
    assert law.peak == pytest.approx(np.sqrt(0.95 / 0.001))
    assert law.ceiling == pytest.approx(law.at(law.peak))
    assert law.at(law.peak) > max(law.at(law.peak * 0.9), law.at(law.peak * 1.1))
    flat = fit(made(10.0, 0.2, 0.0))
    assert flat.peak is None and flat.ceiling == pytest.approx(50.0)
    assert fit(made(7.0, 0.0, 0.0)).at(1000) == pytest.approx(7000)


def test_nothing_comes_out_negative():
    """Faster than in proportion, which the law does not know."""
    law = fit([(n, 10 * n**1.1) for n in LEVELS])
    assert (law.contention, law.coherency, law.peak, law.ceiling) == (0.0, 0.0, None, None)
    assert law.error > 0.1


def test_too_few_levels_are_refused():
    with pytest.raises(ValueError, match="needs 3 levels, there are 2"):
        fit([(1, 1.0), (2, 2.0)])
    with pytest.raises(ValueError, match="above 0"):
        fit([(1, 1.0), (2, 0.0), (4, 1.0)])
