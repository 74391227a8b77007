"""The ways of a case: each does what it says, and a way that did not is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anychip.bench.regress_case_files import package_cases
from anychip.bench.regress_cases import Case, Length, Place, Way
from anychip.bench.regress_measure import (
    measure,
    place_of,
    prompts_of,
    run_case,
    session_of,
)
from anychip.bench.regress_reference import References, log_probabilities
from anychip.bench.regress_speed import Timing
from anychip.config import ServeConfig
from anychip.engine.loaded import LoadedModel
from anychip.model.tiny_family import write_family

ONCE = Timing(1, 0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    cases = package_cases()
    folder = tmp_path_factory.mktemp("model") / "llama"
    path = write_family(folder, cases.settings("llama"), "float32")
    config = ServeConfig(
        model_path=str(path), backend="fake", max_running_requests=8, max_total_tokens=4096
    )
    with LoadedModel(config) as found:
        yield found


@pytest.fixture(scope="module")
def references(model) -> References:
    return References(model.opened.checkpoint, 2304)


def case_of(way: str, length: str = "chunk+1", **changes: object) -> Case:
    """A case of the package's way, or of a way that is a bit different."""
    (found,) = {case.how for case in package_cases().sets["full"] if case.way == way}
    values = {name: getattr(found, name) for name in found.__struct_fields__}
    return Case("llama", "float32", Length(length), way, Way(**{**values, **changes}))


def figures(model, references: References, case: Case):
    return measure(model, case, place_of(model, 48), references, ONCE)


@pytest.mark.parametrize("way", ["cold", "hit", "chunked", "retracted", "batch8"])
def test_every_way_answers_the_same(model, references, way: str) -> None:
    found = figures(model, references, case_of(way))
    cold = figures(model, references, case_of("cold"))
    assert found.wrong == ""
    assert found.tokens[0] == cold.tokens[0]
    assert found.differs is None
    assert found.deviation < 3e-6
    assert found.speeds.tpot is not None


def test_chunks_are_steps_of_their_size(model) -> None:
    place = Place(page=16, chunk=20, context=2304)
    for way, steps in (("cold", 1), ("chunked", 3)):
        case = case_of(way, "49", tokens=1)
        with session_of(model, case, place) as session:
            run_case(session, case, prompts_of(model, case, place))
            assert session.engine.stats().steps == steps


def test_hit_finds_whole_pages_and_shares_all_but_the_last_token(model) -> None:
    case, place = case_of("hit", "33"), place_of(model, 48)
    with session_of(model, case, place) as session:
        (answer,) = run_case(session, case, prompts_of(model, case, place))
    assert answer.cached == 32


def test_way_that_did_not_happen_is_told(model, references) -> None:
    late = case_of("retracted", retract_every=900)
    assert figures(model, references, late).wrong == "no request was retracted"
    huge = replace(place_of(model, 48), page=1)  # so that pages are due which the engine has not
    found = measure(model, case_of("hit", "10"), huge, references, ONCE)
    assert found.wrong == "the prefix cache was not hit"


def test_nothing_is_timed_where_nobody_asks(model, references) -> None:
    place, case = place_of(model, 48), case_of("cold", "5")
    assert measure(model, case, place, references, Timing(0)).speeds is None


def test_read_prompt_has_the_perplexity_of_the_reference(model, references) -> None:
    found = figures(model, references, case_of("read", "130"))
    assert found.perplexity.reference == pytest.approx(found.perplexity.chip, rel=1e-5)
    assert found.perplexity.reference > 50
    assert found.deviation < 1e-6
    prompt = prompts_of(model, case_of("read", "130"), place_of(model, 48))[0]
    scores = references.scores(prompt)
    assert found.perplexity.reference == pytest.approx(np.exp(-scores.mean()))


def test_log_probabilities_are_of_the_tokens_that_came() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [1, 1, 1]]))
    assert np.allclose(log_probabilities(logits, [0, 1, 2]), np.log([0.25, 0.7]))


def test_reference_of_a_longer_sequence_serves_its_beginning(model, references) -> None:
    long = references.whole(tuple(range(3, 43)))
    known = len(references._known)
    assert np.array_equal(references.whole(tuple(range(3, 13))), long[:10])
    assert len(references._known) == known
    fresh = References(model.opened.checkpoint, 2304).whole(tuple(range(3, 13)))
    assert np.allclose(fresh, long[:10], rtol=1e-12, atol=1e-12)
