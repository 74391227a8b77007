"""The cases of `anychip regress`: data, checked in full before anything runs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from anychip.__main__ import main
from anychip.bench.regress_case_files import package_cases, user_cases
from anychip.bench.regress_cases import Case, CasesError, Length, Place, Way
from anychip.model.families import FAMILIES, config_from_hf

PLACE = Place(page=16, chunk=48, context=2304)
GRID = "cases: [{structures: [llama], formats: [float32], lengths: [1], ways: [cold]}]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_small_set_is_part_of_the_full_one_and_keys_are_unique() -> None:
    sets = package_cases().sets
    for cases in sets.values():
        assert len({case.key for case in cases}) == len(cases)
    small, full = ({case.key for case in sets[name]} for name in ("small", "full"))
    assert small < full


def test_full_set_has_every_length_and_way_of_every_structure_that_is_written() -> None:
    cases = package_cases()
    lengths = {"1", "17", "page-1", "page", "page+1", "chunk-1", "chunk+1", "2048", "context"}
    for name, structure in cases.structures.items():
        found = [case for case in cases.sets["full"] if case.structure == name]
        assert {"cold", "hit", "chunked", "retracted", "batch8"} <= {case.way for case in found}
        if structure.model is None:
            assert lengths <= {case.length.text for case in found}


def test_all_structures_but_some(tmp_path: Path) -> None:
    every = "{structures: all, without: [llama], formats: [float32], lengths: [1], ways: [cold]}"
    found = user_cases(written(tmp_path, f"cases: [{every}]")).sets["small"]
    assert "llama" not in {case.structure for case in found}
    assert len(found) > 10


def test_cases_of_a_model_stand_together() -> None:
    for cases in package_cases().sets.values():
        models = [case.model for case in cases]
        assert sum(a != b for a, b in pairwise(models)) == len(set(models)) - 1


def test_every_family_has_a_structure() -> None:
    """A family that is missing here: add its entry to bench/cases/structures.yaml."""
    cases = package_cases()
    written = {name for name, found in cases.structures.items() if found.model is None}
    configs = [config_from_hf(cases.settings(name)) for name in written]
    assert {config.architecture for config in configs} == set(FAMILIES)
    assert {config.context_length for config in configs} == {cases.sizes.context}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("2048", 2048),
        ("page", 16),
        ("page-1", 15),
        ("chunk+1", 49),
        ("context", 2296),
        ("context-4", 2292),
    ],
)
def test_length_is_counted_in_pages_chunks_and_context(text: str, tokens: int) -> None:
    assert Length(text).tokens(PLACE, new=8) == tokens


@pytest.mark.parametrize("text", ["0", "-1", "page*2", "17+1", "pages", "page+0", "", "1.5"])
def test_length_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CasesError, match="a number from 1, or page, chunk or context"):
        Length(text)


def test_prompt_that_does_not_fit_is_refused_by_its_case() -> None:
    case = Case("llama", "float32", Length("2300"), "cold", Way(about="x", tokens=8))
    with pytest.raises(CasesError, match=r"llama-float32/2300/cold: a prompt of 2300 tokens and 8"):
        case.lengths(PLACE)


def test_batch_is_ragged() -> None:
    case = Case("llama", "float32", Length("17"), "batch8", Way(about="x", requests=5))
    assert case.lengths(PLACE) == (17, 12, 7, 2, 1)


REFUSED = {
    "cases: [{structures: [lama], formats: [float32], lengths: [1], ways: [cold]}]": (
        "structure lama: there is none; there are "
    ),
    "cases: [{structures: [llama], formats: [float32], lengths: [1], ways: [warm]}]": (
        "way warm: there is none; there are batch8, chunked, cold, "
    ),
    "cases: [{structures: [llama], formats: [q9], lengths: [1], ways: [cold]}]": (
        "format q9 is none of a written model"
    ),
    "cases: [{structures: [llama], lengths: [1], ways: [cold]}]": "format file is none",
    "cases: [{structures: [demo], formats: [float32], lengths: [1], ways: [cold]}]": (
        "structure demo is a model that has its formats: leave 'formats' out"
    ),
    "cases: [{structures: [llama], formats: [float32], lengths: [pag], ways: [cold]}]": (
        "length 'pag' is none"
    ),
    "cases: [{structures: all, without: [x], formats: [float32], lengths: [1], ways: [cold]}]": (
        "structure x: there is none"
    ),
    "cases: [{structure: [llama]}]": "unknown field `structure` - at `$.cases[0]`",
    "cases: [{structures: [llama], lengths: [1], ways: [cold], sets: [ci]}]": (
        "Invalid enum value 'ci' - at `$.cases[0].sets[0]`"
    ),
    "cases: {": "is no YAML",
    "cases: []\ncases: []": "key 'cases' stands twice",
    "ways: {w: {about: x, tokens: 0}}": "Expected `int` >= 1 - at `$.ways[...].tokens`",
    "ways: {cold: {about: x}}": "way cold is in ways.yaml already; rename it",
    "structures: {llama: {about: x, config: {a: 1}}}": (
        "structure llama is in structures.yaml already; rename it"
    ),
    "structures: {a: {about: x}}": "structure a: give either config (or like) or model",
    "structures: {a: {about: x, model: y, config: {b: 1}}}": "give either config",
    "structures: {a: {about: x, like: b}, b: {about: x, like: a}}\n" + GRID: (
        "structure a is like itself: a -> b -> a"
    ),
    "structures: {a: {about: x, like: z}}\n" + GRID: "structure a: like z: there is none",
    "structures: {a: {about: x, like: demo}}\n" + GRID: "like demo, which has no config",
    "sizes: {context: 1, chunk: 1, slots: 1}": "sizes: they are the package's",
    "ways: {mine: {about: x}}": "it has no cases; list some under 'cases'",
    "cases: 2020-13-45": "a value cannot be read: month must be in 1..12",
    f"cases: {'9' * 5000}": "a value cannot be read: ",
    "structures: {a: {about: x, like: llama, config: {b: 2020-01-02}}}": (
        "structure a: config: b is datetime.date(2020, 1, 2); config.json has no such"
    ),
    "structures: {a: {about: x, like: llama, config: {b: {c: !!set {d}}}}}": "config: b is ",
    "structures: {a: {about: x, like: llama, config: {b: &b [*b]}}}": "config: b is [[...]]",
    "structures: {a: {about: x, like: llama, gguf: {b: [[1]]}}}": (
        "structure a: gguf: b is [[1]]; a text, true or false, an integer of 32 bits"
    ),
    "structures: {a: {about: x, like: llama, gguf: {b: {c: 1}}}}": "gguf: b is {'c': 1}",
    "structures: {a: {about: x, like: llama, gguf: {b: [1, x]}}}": "gguf: b is [1, 'x']",
    "structures: {a: {about: x, like: llama, gguf: {b: 99999999999}}}": "gguf: b is 99999999999",
    "structures: {a: {about: x, like: llama, gguf: {b: 1.0e+99}}}": "gguf: b is 1e+99",
    "": "it has no cases",
    "[]": "Expected `object`, got `array`",
}


@pytest.mark.parametrize(("text", "said"), REFUSED.items())
def test_file_that_cannot_be_is_refused_with_its_name(tmp_path: Path, text, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(CasesError) as caught:
        user_cases(path)
    assert str(caught.value).startswith((str(path), "structure a"))
    assert said in str(caught.value)


def test_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CasesError, match="cannot be read: No such file"):
        user_cases(tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CasesError, match="is no UTF-8 text"):
        user_cases(tmp_path / "mine.yaml")


MINE = """
ways:
  twice: {about: two requests, requests: 2, tokens: 3}
structures:
  wide: {about: twice as wide, like: llama, config: {hidden_size: 128, head_dim: null}}
cases:
  - {structures: [wide], formats: [float32, q4_0], lengths: [page+3], ways: [twice]}
"""


def test_user_adds_a_structure_and_a_way_by_a_file_alone(tmp_path: Path, capsys) -> None:
    words = ["regress", "--backend", "fake", "--cases", str(written(tmp_path, MINE))]
    assert main([*words, "--list"]) == 0
    keys = ["wide-float32/page+3/twice", "wide-q4_0/page+3/twice"]
    assert capsys.readouterr().out.split() == keys
    words += ["--baseline", str(tmp_path), "--cache-dir", str(tmp_path)]
    assert main([*words, "--repeats", "1", "--speed-limit", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [outcome["key"] for outcome in found["outcomes"]] == keys
    assert [len(tokens) for tokens in found["outcomes"][0]["now"]["tokens"]] == [3, 3]


def test_settings_are_those_of_the_structure_that_it_is_like(tmp_path: Path) -> None:
    settings = user_cases(written(tmp_path, MINE)).settings("wide")
    assert settings["hidden_size"] == 128
    assert settings["num_attention_heads"] == 4
    assert "head_dim" not in settings


def test_model_of_the_users_own_is_run_as_it_is(tmp_path: Path, capsys) -> None:
    from anychip.model.tiny import write_tiny

    model = write_tiny(tmp_path, "q4_1", context=256)
    text = f"""
structures: {{own: {{about: mine, model: "{model}"}}}}
cases: [{{structures: [own], lengths: [context], ways: [cold]}}]
"""
    words = ["regress", "--backend", "fake", "--cases", str(written(tmp_path, text))]
    words += ["--baseline", str(tmp_path), "--cache-dir", str(tmp_path), "--repeats", "1"]
    assert main([*words, "--verbose"]) == 0
    assert "own-file/context/cold" in capsys.readouterr().out


def test_wrong_file_and_empty_choice_are_told_by_the_command(tmp_path: Path, capsys) -> None:
    words = ["regress", "--backend", "fake", "--cases", str(written(tmp_path, "a: 1"))]
    assert main(words) == 1
    assert "unknown field `a`" in capsys.readouterr().err
    small = MINE.replace("ways: [twice]}", "ways: [twice], sets: [full]}")
    words[-1] = str(written(tmp_path, small))
    assert main(words) == 2
    assert "--cases: there is no case of set small; try --list" in capsys.readouterr().err


OF_ONE = "cases: [{{structures: [{}], formats: [{}], lengths: [{}], ways: [cold]}}]\n"
MODELS = {
    "structures: {wide: {about: x, like: llama, config: {vocab_size: 16000000}}}\n"
    + OF_ONE.format("wide", "float32", 1): (
        "model wide-float32: the settings make a model of 2,048,",
        "elements; at most 268,435,456 are written, give smaller sizes",
    ),
    "structures: {odd: {about: x, like: llama, config: {rms_norm_eps: x}}}\n"
    + OF_ONE.format("odd", "float32", 1): ("model odd-float32: ", "'rms_norm_eps' is 'x'"),
    OF_ONE.format("mistral", "q8_0", 1): ("model mistral-q8_0: format of a written mistral",),
    OF_ONE.format("llama", "float32", "page-9999"): (
        "case llama-float32/page-9999/cold: a prompt of -99",
        "give another length",
    ),
    "structures: {own: {about: x, model: org/name}}\n"
    "cases: [{structures: [own], lengths: [1], ways: [cold]}]": (
        "structure own: model: org/name is not there; name a folder or a .gguf file",
    ),
}


@pytest.mark.parametrize(("text", "said"), MODELS.items())
def test_a_model_that_cannot_be_is_told_with_its_name(tmp_path: Path, capsys, text, said) -> None:
    words = ["regress", "--backend", "fake", "--cases", str(written(tmp_path, text))]
    assert main([*words, "--baseline", str(tmp_path), "--cache-dir", str(tmp_path)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("anychip: error: ") and all(part in last for part in said)
