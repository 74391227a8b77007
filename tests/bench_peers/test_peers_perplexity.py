"""Perplexity: windows, losses, and logits of every position by the engine's own step."""

from __future__ import annotations

import numpy as np
import perplexity
import pytest
from perplexity import Scores, joined, row, scored, table, windows_of
from whole_logits import WholeLogits

import tiny_models
from anychip.config import ServeConfig
from anychip.engine.loaded import LoadedModel
from anychip.ops.check import relative_l2
from anychip.run.reference import reference_logits


def test_windows_do_not_overlap() -> None:
    assert windows_of(list(range(10)), 3, 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    with pytest.raises(ValueError, match="the text has 10 tokens, 12 are asked for"):
        windows_of(list(range(10)), 3, 4)


def test_the_text_is_long_enough_for_the_default() -> None:
    assert len(perplexity.text()) > 4 * perplexity.LEAST_TOKENS


def test_even_odds_have_the_perplexity_of_the_vocabulary() -> None:
    found = scored(np.zeros((3, 50), np.float32), [1, 2, 3])
    assert found.perplexity == pytest.approx(50)


def test_losses_are_those_of_the_token_that_came() -> None:
    odds = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    found = scored(np.log(odds).astype(np.float32) + 30, [1, 2])
    np.testing.assert_allclose(found.losses, -np.log([0.25, 0.8]), rtol=1e-5)
    assert found.best.tolist() == [0, 2]


def test_scores_are_joined_in_order() -> None:
    parts = [Scores(np.array([1.0]), np.array([3])), Scores(np.array([2.0]), np.array([4]))]
    assert joined(parts).losses.tolist() == [1, 2] and joined(parts).best.tolist() == [3, 4]


def test_a_row_compares_token_by_token() -> None:
    base = Scores(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 2, 3, 4]))
    other = Scores(base.losses + np.array([0.1, 0.3, 0.1, 0.3]), np.array([1, 2, 3, 9]))
    cells = row("x", other, base)
    assert cells[1] == f"{np.exp(2.7):.4f}"
    assert cells[2] == f"{np.exp(0.2) - 1:+.3%}"
    assert cells[3] == f"+0.20000 ± {0.2 / 3**0.5 / 2:.5f}"
    assert cells[4] == "75.00%"
    assert table({"base": base, "x": other}).count("\n") == 3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))
    with LoadedModel(ServeConfig(model_path=str(folder), dtype="float32")) as loaded:
        yield loaded


@pytest.mark.parametrize("chunk", [7, 16, 64])
def test_every_position_has_its_logits_whatever_the_chunk(model, chunk) -> None:
    """Two sequences, one behind the other: nothing of the first is left in the second."""
    noise = np.random.default_rng(chunk)
    checkpoint = model.opened.checkpoint
    with WholeLogits(model, 60, chunk) as whole:
        for length in (60, 33):
            tokens = noise.integers(3, tiny_models.VOCAB, length).tolist()
            found = np.concatenate(list(whole.of(tokens)))
            wanted = reference_logits(checkpoint, checkpoint.config, tokens)
            assert found.shape == wanted.shape
            assert relative_l2(wanted, found) < 1e-5
            for position in (0, min(chunk, length) - 1, length - 1):
                assert relative_l2(wanted[position], found[position]) < 1e-5


def test_memory_is_given_back(tmp_path) -> None:
    """On a chip that counts its own memory."""
    folder = tiny_models.make_hf_folder(tmp_path)
    with LoadedModel(ServeConfig(model_path=str(folder), backend="fake")) as loaded:
        memory = loaded.opened.chip.memory
        before = memory.info().used
        with WholeLogits(loaded, 32, 16) as whole:
            assert len(next(whole.of([5] * 20))) == 16
            assert memory.info().used > before
        assert memory.info().used == before


def test_perplexity_of_a_folder_is_that_of_transformers(tmp_path) -> None:
    folder = tiny_models.make_hf_folder(tmp_path / "model")
    ids = np.random.default_rng(0).integers(3, tiny_models.VOCAB, 80).tolist()
    windows = windows_of(ids, 40, 2)
    ours, theirs = (
        joined(list(perplexity.ENGINES[engine](perplexity.Run(engine, folder, "float32"), windows)))
        for engine in ("anychip", "transformers")
    )
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-3, atol=1e-4)
    assert len(ours.losses) == 2 * 39
