"""`anychip doctor` on a model's operators at real shapes: what dies, hangs, is wrong or guessed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tiny_models
from anychip.__main__ import main
from anychip.chips.fake.build import FakeBuild
from anychip.config import ServeConfig
from anychip.contract.build import Finding, Verdict
from anychip.contract.child import ChildFailed
from anychip.contract.dtype import DType
from anychip.contract.errors import ChipError, ChipLayer, ErrorFact, ErrorKind
from anychip.contract.operators import CallSpec, Implementation, OperatorTable
from anychip.contract.registration import Option, Probe, register_chip
from anychip.contract.tensor import TensorSpec
from anychip.engine import doctor_shapes
from anychip.engine.doctor_shapes import Seen, seen_of
from anychip.ops import check
from anychip.run.plan_run import open_run
from anychip.run.real_shapes import Answer, Asked
from crooked_chip import CrookedChip

NORM = "fake.rms_norm"
FATAL = ErrorFact(ChipLayer.EXECUTION, ErrorKind.KERNEL, True, "an exception of the kernel")


@register_chip("brittle", contract=(0, 3))
class Brittle(CrookedChip):
    """A crooked chip with more ways to fail. Each option names operators."""

    options = (
        *CrookedChip.options,
        Option("leaves", str, "", "ends its process, as if all were well"),
        Option("fatal", str, "", "fails fatally"),
        Option("raises", str, "", "raises something"),
        Option("guesses", str, "", "is a guess"),
        Option("assumed", str, "", "has something assumed of its call"),
        Option("taken", str, "", "a file that is there while the device is open"),
    )

    def __init__(self, values) -> None:
        super().__init__(values)
        self._taken = Path(values["taken"]) if values["taken"] else None
        if self._taken is not None:
            self._taken.touch(exist_ok=False)
        fails = {"leaves": _leave, "fatal": _fail, "raises": _raise}
        found = []
        for each in self.operators.implementations:
            one = each
            for option, launch in fails.items():
                if one.op in values[option].split("+"):
                    one = dataclasses.replace(one, prepare=lambda call, launch=launch: launch)
            guess, known = one.op in values["guesses"].split("+"), one.op in values["assumed"]
            text = "the order of its arguments" if guess or known else ""
            found.append(dataclasses.replace(one, unproved=guess, assumed=text, call="vendor_f"))
        self.operators = OperatorTable(tuple(found))

    def close(self) -> None:
        super().close()
        if self._taken is not None:
            self._taken.unlink(missing_ok=True)


def _leave() -> None:
    os._exit(0)


def _fail() -> None:
    raise ChipError(FATAL, chip="brittle", code=714)


def _raise() -> None:
    raise LookupError("no such tile")


class Sdk(FakeBuild):
    """A build layer that a chip has before it is open."""

    def versions(self):
        return {"sdk": "7.1"}

    def check(self):
        return (Finding("library x", Verdict.UNKNOWN, "found twice", "set LIBRARY_PATH"),)


class Lacking(Sdk):
    def check(self):
        return (Finding("library x", Verdict.BAD, "not found", "install it"),)


@register_chip("bare", contract=(0, 3))
class Bare(CrookedChip):
    """Its SDK is there, a card is not."""

    options = (*CrookedChip.options, Option("lacking", bool, False, "its SDK lacks a library"))

    @classmethod
    def probe(cls, options):
        return Probe((), "no card is plugged in")

    @classmethod
    def toolchain(cls, options):
        return Lacking() if options["lacking"] else Sdk()


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """While a test runs, both chips are found, as if pip had installed them."""
    info = tmp_path / "site" / "brittle-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brittle\nVersion: 0.1.0\n")
    lines = [f"{name.lower()} = {__name__}:{name}\n" for name in ("Brittle", "Bare")]
    (info / "entry_points.txt").write_text("[anychip.chips]\n" + "".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"), dtype="bfloat16")


@pytest.fixture
def look(capsys, folder, tmp_path):
    """Exit code and findings of a doctor's visit to the model."""

    def look(**options: str) -> tuple[int, list[dict]]:
        words = ["doctor", "--json", "--backend", "brittle", "--model-path", str(folder)]
        words += ["--cache-dir", str(tmp_path / "cache"), "--max-running-requests", "4"]
        code = main([*words, *(f"--chip-option={n}={v}" for n, v in options.items())])
        return code, json.loads(capsys.readouterr().out)

    return look


def named(found: list[dict], name: str) -> list[dict]:
    return [f for f in found if f["name"] == name]


def shapes(found: list[dict]) -> dict[str, str]:
    """Verdict -> text of the lines about all operators."""
    return {f["verdict"]: f["text"] for f in named(found, "real shapes")}


def test_sound_operators_are_one_green_line(look) -> None:
    code, found = look()
    assert code == 0
    (line,) = named(found, "real shapes")
    assert line["verdict"] == "good"
    assert line["text"].startswith("13 operators agree with the oracle in ")
    assert "at " in line["text"] and "% of its limit" in line["text"]
    assert not [f for f in found if f["name"].startswith("operator ")]
    names = [f["name"] for f in found]
    assert names.index("model") < names.index("real shapes") < names.index("operators")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("deadly", "killed by SIGSEGV"),
        ("leaves", "it ended without an answer"),
        ("endless", f"exit status 70: '{NORM}' did not end within 1 s"),
    ],
)
def test_operator_that_ends_its_process_has_a_name(option, text, look, monkeypatch) -> None:
    monkeypatch.setattr(doctor_shapes, "CALL_S", 1.0)
    code, found = look(**{option: "rms_norm"})
    assert code == 1
    (line,) = [f for f in found if f["verdict"] == "bad"]
    assert line["name"] == "operator rms_norm"
    assert line["text"] == f"{NORM} at a real shape: {text}"
    assert line["step"].startswith("anychip conform --backend brittle")
    told = shapes(found)
    assert told["unknown"] == f"the process that ran all: {text}; one by one now"
    assert told["good"].startswith("12 operators agree")
    assert named(found, "memory plan")[0]["verdict"] == "good"


def test_fatal_error_has_one_name_and_the_others_are_asked_alone(look) -> None:
    code, found = look(fatal="rms_norm", wrong="embedding+linear")
    assert code == 1
    bad = {f["name"]: f["text"] for f in found if f["verdict"] == "bad"}
    assert set(bad) == {"operator rms_norm", "operator embedding", "operator linear"}
    assert len([f for f in found if f["verdict"] == "bad"]) == 3
    assert bad["operator rms_norm"].startswith(f"{NORM} at a real shape (x ")
    assert "714" in bad["operator rms_norm"] and "an exception" in bad["operator rms_norm"]
    assert bad["operator linear"].startswith("fake.linear: linear diverges from the oracle")
    assert shapes(found)["good"].startswith("10 operators agree")
    assert "unknown" not in shapes(found)


def test_operator_that_raises_is_one_line_and_no_fault_of_others(look) -> None:
    code, found = look(raises="linear")
    assert code == 1
    (line,) = [f for f in found if f["verdict"] == "bad"]
    assert line["name"] == "operator linear"
    assert line["text"].endswith("): LookupError: no such tile")
    assert shapes(found)["good"].startswith("12 operators agree")


def test_known_mistake_is_named(look) -> None:
    code, found = look(wrong="linear", factor="0")
    assert code == 1
    (line,) = named(found, "operator linear")
    assert "it looks as if every number is the same (0)" in line["text"]


def test_device_that_opens_once_is_one_red_line(look, tmp_path) -> None:
    code, found = look(taken=str(tmp_path / "taken"))
    assert code == 1
    (line,) = [f for f in found if f["verdict"] == "bad"]
    assert line["name"] == "real shapes"
    assert "could not start: FileExistsError" in line["text"]


def test_assumptions_are_yellow_lines(look) -> None:
    code, found = look(assumed="rms_norm linear")
    assert code == 0
    (line,) = named(found, "assumed")
    assert line["verdict"] == "unknown" and line["step"]
    assert line["text"].splitlines() == [
        "rms_norm, vendor_f: the order of its arguments",
        "linear, vendor_f: the order of its arguments",
    ]
    assert not named(found, "guesses")


def servers(folder: Path, tmp_path: Path, op: str, **options: str) -> set[str]:
    """Who serves an operator in a start that follows."""
    asked = ServeConfig(
        model_path=str(folder),
        backend="brittle",
        cache_dir=str(tmp_path / "cache"),
        chip_option=options,
    )
    opened = open_run(asked)
    try:
        return {s.implementation for s in opened.record().served() if s.op == op}
    finally:
        opened.close()


def test_first_visit_confirms_a_guess_and_the_next_start_binds_it(look, folder, tmp_path) -> None:
    options = {"guesses": "rms_norm"}
    assert servers(folder, tmp_path, "rms_norm", **options) == {"composed"}
    code, found = look(**options)
    assert code == 0
    (line,) = named(found, "guesses")
    assert line["verdict"] == "good"
    assert line["text"].startswith(f"confirmed on this SDK: {NORM}; bound from now on (")
    assert named(found, "operators")[0]["text"] == "17 native, 2 composed"
    assert named(found, "assumed")
    assert servers(folder, tmp_path, "rms_norm", **options) == {NORM}


@pytest.mark.parametrize("how", ["wrong", "deadly"])
def test_wrong_guess_is_no_fault_of_what_is_bound(look, folder, tmp_path, how) -> None:
    options = {"guesses": "silu_and_mul", how: "silu_and_mul"}
    code, found = look(**options)
    assert code == 0
    (line,) = named(found, "operator silu_and_mul")
    assert line["verdict"] == "unknown"
    assert line["text"].endswith("; it is a guess (the order of its arguments) and stays unbound")
    assert not named(found, "guesses")
    assert shapes(found)["good"].startswith("14 operators agree")  # silu and mul beside 12
    assert servers(folder, tmp_path, "silu_and_mul", **options) == {"composed"}


def test_guess_that_cannot_be_recorded_is_told_and_stays_unbound(look, folder, tmp_path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "proved").write_text("a file")
    code, found = look(guesses="rms_norm")
    assert code == 0
    (line,) = named(found, "guesses")
    assert line["verdict"] == "unknown" and "cannot be kept" in line["text"] and line["step"]
    assert shapes(found)["good"]
    assert "rms_norm" in named(found, "slow operators")[0]["text"]


@pytest.mark.parametrize("lacking", [False, True])
def test_toolchain_is_looked_at_where_no_card_is(capsys, lacking) -> None:
    words = ["doctor", "--json", "--backend", "bare", f"--chip-option=lacking={lacking}"]
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    (library,) = named(found, "library x")
    assert library["verdict"] == ("bad" if lacking else "unknown")
    assert named(found, "versions")[0]["text"] == "sdk 7.1"
    probe = "not looked at: 'toolchain' is not sound" if lacking else "no device: no card"
    assert named(found, "probe")[0]["text"].startswith(probe)
    assert named(found, "open")[0]["text"].startswith("not looked at: ")


def asked(ident: str, op: str = "neg", **declared: Any) -> Asked:
    row = TensorSpec((3,), DType.FLOAT32)
    implementation = Implementation(op=op, id=ident, prepare=lambda call: lambda: None, **declared)
    return Asked(implementation, CallSpec(op, {"x": row}, {"y": row}, {}), {})


class Scripted:
    """Answers by implementation: (error, limit, control), or something to raise."""

    def __init__(self, script) -> None:
        self._script = {name: list(answers) for name, answers in script.items()}

    def answer(self, call: Asked) -> Answer:
        answer = self._script[call.implementation.id].pop(0)
        if isinstance(answer, Exception):
            raise answer
        error, bound, control = answer
        verdict = check.Verdict(error <= bound, error, bound, control, "told")
        return Answer(call, verdict)


def seen(script: dict) -> Seen:
    calls = [asked(name) for name, answers in script.items() for _ in answers]
    return seen_of(Scripted(script), calls, "a step")


def test_what_could_not_have_failed_confirms_nothing() -> None:
    found = seen({"a": [(0, 0, None), (0, 0, 0.0)], "b": [(0, 0, None), (0, 0, 0.5)]})
    assert (found.good, found.unsure) == (["a", "b"], ["a"])


def test_one_wrong_answer_outweighs_the_right_ones() -> None:
    right = {"b": [(0.01, 0.1, 1), (0.05, 0.1, 1)], "c": [(0.02, 0.1, 1), (0, 0, 1)]}
    found = seen({"a": [(0.0, 0.1, 1), (0.3, 0.1, 1), (0.2, 0.1, 1)], **right})
    assert list(found.bad) == ["a"] and found.good == ["b", "c"]
    assert found.calls == 4 and (found.nearest, found.share) == ("b", 0.5)


def test_nearest_is_measured_against_a_declared_tolerance() -> None:
    calls = [asked("a", tolerance=8.0), asked("b")]
    script = {"a": [(0.08, 0.1, 1)], "b": [(0.02, 0.1, 1)]}
    found = seen_of(Scripted(script), calls, "a step")
    assert (found.nearest, found.share) == ("b", pytest.approx(0.2))


def test_what_a_fatal_error_leaves_is_left_unless_it_was_wrong_before() -> None:
    fatal = ChipError(FATAL, chip="brittle", code=1)
    calls = [asked(name) for name in ("a", "b", "c", "d", "c", "a", "b", "e")]
    script = {"a": [(1, 0.1, 1)], "b": [(0, 0.1, 1)], "c": [(0, 0.1, 1)], "d": [fatal]}
    found = seen_of(Scripted(script), calls, "a step")
    assert set(found.bad) == {"a", "d"}
    assert (found.good, found.left) == ([], ["b", "c", "e"])


def test_nearest_is_that_of_all_processes() -> None:
    whole = Seen()
    for share, name in ((0.2, "a"), (0.7, "b"), (0.1, "c")):
        whole.add(Seen(good=[name], calls=2, share=share, nearest=name))
    assert whole.text == (
        "3 operators agree with the oracle in 6 calls; nearest: b at 70% of its limit"
    )
    assert Seen(good=["a"], calls=1).text.endswith("nearest: all exact")


def test_time_of_those_asked_alone_is_bounded(monkeypatch) -> None:
    """No operator answers: each one's patience is spent, until the time of all is over."""
    now, given = [0.0], []

    def hang(config, ids, timeout):
        given.append(timeout)
        now[0] += timeout
        raise ChildFailed(f"no answer within {timeout:g} s")

    monkeypatch.setattr(doctor_shapes, "_ask", hang)
    monkeypatch.setattr(doctor_shapes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ids = [f"{n}" for n in range(6)]
    used = {one: asked(one).implementation for one in ids}
    whole = Seen(left=list(ids))
    (rest,) = doctor_shapes._one_by_one(ServeConfig(backend="brittle"), used, whole)
    assert given == [120.0, 120.0, 60.0] and list(whole.bad) == ["0", "1", "2"]
    assert (rest.verdict, rest.text) == (Verdict.UNKNOWN, "not run within 300 s: 3, 4, 5")


def test_close_that_fails_loses_nothing(folder, monkeypatch, tmp_path) -> None:
    def stuck(self):
        raise OSError("the device is gone")

    monkeypatch.setattr(doctor_shapes, "die_with", lambda parent: None)
    monkeypatch.setattr(Brittle, "close", stuck)
    config = {"model_path": str(folder), "backend": "brittle", "cache_dir": str(tmp_path)}
    question = {"config": config, "parent": 0, "ids": [NORM, "fake.linear"], "patience": 60.0}
    found = doctor_shapes.answer_shapes(question)
    assert found["good"] == ["fake.linear", NORM]
    (line,) = found["other"]
    assert line["text"] == "OSError: the device is gone"
