"""Guesses: not bound before they are confirmed, and not after anything about them changed."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tiny_models
from anychip.chips.fake.build import FakeBuild
from anychip.chips.fake.registration import FakeChip
from anychip.config import ServeConfig
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec, OperatorTable
from anychip.contract.registration import Option, read_options, register_chip
from anychip.contract.tensor import TensorSpec
from anychip.ops.decide import ChoiceDeclines, Decider, MissingOperator
from anychip.run.plan_run import open_run
from anychip.run.proved import proved_ids, record_path, record_proved

GUESS = "fake.rms_norm"


class Versioned(FakeBuild):
    def __init__(self, version: str) -> None:
        self._version = version

    def versions(self):
        return {"sdk": self._version}


@register_chip("guessing", contract=(0, 3))
class Guessing(FakeChip):
    """A chip whose ways to compute some operators are guesses."""

    options = (
        *FakeChip.options,
        Option("guesses", str, "rms_norm", "operators, separated by plus signs"),
        Option("version", str, "1", "of its SDK"),
        Option("order", str, "x first", "what is assumed of its calls"),
    )

    def __init__(self, values) -> None:
        super().__init__(values)
        self.build = Versioned(values["version"])
        ops, order = values["guesses"].split("+"), values["order"]
        self.operators = OperatorTable(
            tuple(
                dataclasses.replace(i, unproved=True, call=f"vendor_{i.op}", assumed=order)
                if i.op in ops
                else i
                for i in self.operators.implementations
            )
        )


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """While a test runs, `--backend guessing` finds the chip, as if pip had installed it."""
    info = tmp_path / "site" / "guessing-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guessing\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[anychip.chips]\nguessing = test_proved:Guessing\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def chip(**options: str) -> Guessing:
    return Guessing(read_options(Guessing, options))


def norm() -> CallSpec:
    x, weight = TensorSpec((4, 8), DType.FLOAT32), TensorSpec((8,), DType.FLOAT32)
    return CallSpec("rms_norm", {"x": x, "weight": weight}, {"y": x}, {"eps": 1e-5})


def exp() -> CallSpec:
    x = TensorSpec((4, 8), DType.FLOAT32)
    return CallSpec("exp", {"x": x}, {"y": x}, {})


def test_guess_is_composed_and_the_reason_tells_what_is_assumed() -> None:
    decision = Decider(chip().operators)(norm())
    assert decision.composed
    (why,) = decision.why
    assert why.startswith(f"{GUESS} declines: its call is a guess that nothing confirmed here")
    assert "(x first)" in why and "anychip doctor" in why


def test_guessed_primitive_is_missing_for_that_reason() -> None:
    with pytest.raises(MissingOperator, match=r"'exp' is missing.*is a guess.*\(x first\)"):
        Decider(chip(guesses="exp").operators)(exp())


def test_confirmed_guess_is_bound_and_no_other() -> None:
    table = chip(guesses="rms_norm+exp").operators
    decide = Decider(table, proved=frozenset({GUESS}))
    assert decide(norm()).name == GUESS and decide(norm()).why == ()
    with pytest.raises(MissingOperator):
        decide(exp())


def test_choosing_a_guess_is_refused_for_the_same_reason() -> None:
    table, choice = chip().operators, {"rms_norm": GUESS}
    with pytest.raises(ChoiceDeclines, match=rf"--op chose {GUESS}.*is a guess.*\(x first\)"):
        Decider(table, choice)(norm())
    assert Decider(table, choice, proved=frozenset({GUESS}))(norm()).name == GUESS


def test_record_confirms_what_is_in_it(tmp_path) -> None:
    guessed = chip(guesses="rms_norm+exp")
    assert proved_ids(tmp_path, guessed) == frozenset()
    path = record_proved(tmp_path / "new", guessed, [GUESS])
    assert path == record_path(tmp_path / "new", guessed)
    assert proved_ids(tmp_path / "new", guessed) == {GUESS}
    record_proved(tmp_path / "new", guessed, ["fake.exp"])
    assert proved_ids(tmp_path / "new", guessed) == {GUESS, "fake.exp"}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    entry = json.loads(path.read_text())["implementations"][GUESS]
    assert entry["guess"] == "vendor_rms_norm: x first" and entry["confirmed"][:2] == "20"


@pytest.mark.parametrize("change", [{"version": "2"}, {"order": "weight first"}])
def test_another_version_or_another_guess_asks_anew(tmp_path, change) -> None:
    record_proved(tmp_path, chip(), [GUESS])
    assert proved_ids(tmp_path, chip(**change)) == frozenset()
    record_proved(tmp_path, chip(**change), [GUESS])
    assert proved_ids(tmp_path, chip(**change)) == {GUESS}
    assert proved_ids(tmp_path, chip()) == ({GUESS} if "version" in change else frozenset())


def test_what_is_no_guess_is_neither_looked_up_nor_confirmed(tmp_path) -> None:
    sure = chip(guesses="")
    path = record_proved(tmp_path, chip(), [GUESS, "fake.exp", "nobody.exp"])
    assert proved_ids(tmp_path, sure) == frozenset()
    assert proved_ids(tmp_path, chip(guesses="exp")) == frozenset()  # it is none in the record
    sure.build = None
    assert proved_ids(tmp_path, sure) == frozenset()
    assert "nobody.exp" not in path.read_text()


DAMAGED = ["", "{", "[]", "3", "{}", '{"implementations": 3}', '{"implementations": ["%s"]}']
DAMAGED += ['{"implementations": {"%s": "yes"}}', '{"implementations": {"%s": {}}}', "\xff\xfe"]


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_record_confirms_nothing_and_is_written_anew(tmp_path, text) -> None:
    path = record_path(tmp_path, chip())
    path.write_bytes(text.replace("%s", GUESS).encode("latin-1"))
    assert proved_ids(tmp_path, chip()) == frozenset()
    record_proved(tmp_path, chip(), [GUESS])
    assert proved_ids(tmp_path, chip()) == {GUESS}


def test_record_that_is_a_folder_confirms_nothing(tmp_path) -> None:
    record_path(tmp_path, chip()).mkdir()
    assert proved_ids(tmp_path, chip()) == frozenset()
    with pytest.raises(OSError):
        record_proved(tmp_path, chip(), [GUESS])


def test_writers_at_once_lose_nothing(tmp_path) -> None:
    ops = ("exp", "log", "neg", "abs", "sqrt", "tanh", "silu", "add", "sub", "mul", "div", "pow")
    guessed = chip(guesses="+".join(ops))
    ids = [f"fake.{op}" for op in ops]
    with ThreadPoolExecutor(len(ids)) as pool:
        list(pool.map(lambda one: record_proved(tmp_path, guessed, [one]), ids))
    assert proved_ids(tmp_path, guessed) == set(ids)
    kept = {p.name for p in tmp_path.glob("*guessing*")}
    assert all(name.endswith((".json", ".lock")) for name in kept) and len(kept) == 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def norms(asked: ServeConfig) -> tuple[set[str], int]:
    """Who serves rms_norm in a start, and how many rows it takes at once."""
    opened = open_run(asked)
    try:
        served = {s.implementation for s in opened.record().served() if s.op == "rms_norm"}
        return served, opened.limits.max_running
    finally:
        opened.close()


def test_start_binds_what_was_confirmed_for_its_versions(folder, tmp_path) -> None:
    def asked(**options: Any) -> ServeConfig:
        return ServeConfig(
            model_path=str(folder),
            backend="guessing",
            cache_dir=str(tmp_path / "cache"),
            chip_option=options,
        )

    guesses = "rms_norm+paged_attention"
    assert norms(asked(guesses=guesses)) == ({"composed"}, 4)
    ids = [GUESS, "fake.paged_attention"]
    path = record_proved(asked().proved_path, chip(guesses=guesses), ids)
    assert path.is_relative_to(tmp_path / "cache")
    assert norms(asked(guesses=guesses)) == ({GUESS}, 64)
    assert norms(asked(guesses=guesses, version="2")) == ({"composed"}, 4)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_folder_that_cannot_be_written_is_told(tmp_path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        record_proved(tmp_path, chip(), [GUESS])
