"""`anychip models`: every family is listed with what it needs, and asked of a chip."""

from __future__ import annotations

import json

import pytest

from anychip.__main__ import main
from anychip.bench import families
from anychip.contract.catalogue import CATALOGUE
from anychip.model.families import FAMILIES
from anychip.ops.record import Served
from anychip.run.coverage import CoverageReport


def test_every_family_is_listed_with_what_sets_it_apart(capsys):
    assert main(["models", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["families"]
    by = {line["name"]: line for line in found}
    assert list(by) == list(FAMILIES)
    assert by["llama"]["beyond"] == [] and by["llama"]["traits"] == []
    assert "qk_norm" in by["qwen3"]["beyond"] and "windows" in by["gemma2"]["traits"]
    assert {"latent_write", "route_experts"} <= set(by["deepseek3"]["beyond"])
    assert all(set(line["operators"]) <= set(CATALOGUE) for line in found)


def test_the_table_is_for_people(capsys):
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert "Qwen3ForCausalLM" in shown and "sink_attention" in shown


def test_each_family_is_asked_of_a_chip(capsys):
    assert main(["models", "--check", "--backend", "fake", "--json"]) == 0
    said = capsys.readouterr()
    served = json.loads(said.out)["served"]
    assert [line["name"] for line in served] == list(FAMILIES)
    assert not any(line["missing"] for line in served)
    assert f"{len(FAMILIES)} of {len(FAMILIES)}" in said.err


@pytest.mark.parametrize(
    "words", [["--backend", "fake"], ["--device-index", "1"], ["--chip-option", "nope=1"]]
)
def test_a_chip_that_is_not_asked_is_not_named(words, capsys):
    assert main(["models", *words]) == 2
    said = f"anychip: error: {words[0]}: no chip is asked; add --check or leave it out\n"
    assert capsys.readouterr().err == said


def test_an_operator_that_is_missing_is_named(monkeypatch, capsys):
    def lacking(config):
        served = Served("linear", "required native", "native", "x.linear", 1, ())
        return CoverageReport(config.model_path, config.backend, [served], ["topk"])

    monkeypatch.setattr(families, "coverage", lacking)
    assert main(["models", "--check", "--backend", "fake"]) == 1
    assert "topk" in capsys.readouterr().out


def test_a_chip_that_is_not_there_is_told_before_any_progress(capsys):
    assert main(["models", "--check", "--backend", "nope"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("anychip: error: no chip 'nope'") and len(told.splitlines()) == 1
