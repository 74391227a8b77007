"""Missing operators, host operators, coverage, and the checker, through a real start."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

import tiny_models
from answers.equality import Oracle, assert_same, config, greedy
from anychip.bench.regress_case_files import package_cases
from anychip.contract.operators import OperatorTable
from anychip.engine.build import build_engine
from anychip.engine.messages import StartError
from anychip.engine.offline import OfflineEngine
from anychip.model.checkpoint import open_checkpoint
from anychip.model.tiny_family import write_family
from anychip.run.check import StepChecker
from anychip.run.coverage import coverage
from anychip.run.dense import dense_reader
from anychip.run.plan_run import open_run

PROMPT = [5, 100, 200, 7, 9, 300, 21]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


def fake(folder: Path, **options: str):
    return config(folder, backend="fake", chip_option=options)


def test_start_without_one_primitive_is_refused_by_its_name(folder: Path) -> None:
    lines: list[str] = []
    asked = fake(folder, primitives_only="true", without="rsqrt")
    with pytest.raises(StartError, match=rf"cannot serve {folder}: it needs rsqrt\."):
        build_engine(asked, lines.append)
    assert any("rsqrt" in line and "missing" in line for line in lines)
    assert not any("loading" in line for line in lines)


def test_host_operators_are_listed_counted_and_told(folder: Path, caplog) -> None:
    caplog.set_level("INFO", logger="anychip.engine")
    options = {"primitives_only": "true", "without": "rsqrt,sort"}
    with OfflineEngine(
        dataclasses.replace(fake(folder, **options), allow_host_ops=True)
    ) as offline:
        (found,) = offline.generate([PROMPT], greedy(8))
        host = {op for op, _, kind in offline.info.operators if kind == "host"}
        traffic = offline.engine.runner.host_traffic
    oracle = Oracle(tiny_models.make_hf_model())
    assert found.token_ids == oracle.answer(PROMPT, 8)
    assert host == {"rsqrt", "sort"}
    assert traffic.calls == 8 * (2 * tiny_models.LAYERS + 1)
    assert traffic.nbytes > 0
    assert f"host operators: {traffic.calls} calls" in caplog.text


def test_user_may_choose_an_implementation(folder: Path) -> None:
    asked = dataclasses.replace(fake(folder), op={"rms_norm": "composed"})
    with OfflineEngine(asked) as offline:
        served = {op: kind for op, _, kind in offline.info.operators}
    assert served["rms_norm"] == "composed"
    assert served["rsqrt"] == "native"
    wrong = dataclasses.replace(fake(folder), op={"rms_norm": "cuda"})
    with pytest.raises(StartError, match=r"'rms_norm' can be served by fake\.rms_norm, composed"):
        build_engine(wrong, lambda line: None)


def test_coverage_tells_native_composed_and_missing(folder: Path) -> None:
    report = coverage(fake(folder))
    kinds = {row.op: row.kind for row in report.rows}
    assert kinds["linear"] == "native"
    assert kinds["attention_block"] == "composed"
    assert report.missing == []
    assert coverage(fake(folder, primitives_only="true", without="exp,sort")).missing == [
        "exp",
        "sort",
    ]


def checked(offline: OfflineEngine, folder: Path) -> StepChecker:
    """Put a checker into a running engine."""
    runner, dense = offline.engine.runner, dense_reader(open_checkpoint(folder))
    runner.checker = StepChecker(runner._plan, runner._chip, runner._programs._decide, dense)
    return runner.checker


@pytest.mark.parametrize(
    ("backend", "least"), [("fake", 60), ("cpu", 20)]
)  # cpu serves whole blocks
def test_sound_chip_passes_the_checker(folder: Path, backend: str, least: int) -> None:
    with OfflineEngine(config(folder, backend=backend)) as offline:
        checker = checked(offline, folder)
        (found,) = offline.generate([PROMPT], greedy(3))
        assert checker.divergences == []
        assert checker.checked > least
    assert found.token_ids == Oracle(tiny_models.make_hf_model()).answer(PROMPT, 3)


def broken(table: OperatorTable, op: str) -> OperatorTable:
    """The same table with one operator whose output is a little wrong."""

    def prepare(call, sound):
        launch = sound.prepare(call)
        scaled = dataclasses.replace(
            call, spec=dataclasses.replace(call.spec, attrs={**call.attrs, "eps": 0.1})
        )
        return sound.prepare(scaled) if "eps" in call.attrs else launch

    found = []
    for impl in table.implementations:
        if impl.op == op:
            found.append(
                dataclasses.replace(impl, prepare=lambda call, sound=impl: prepare(call, sound))
            )
        else:
            found.append(impl)
    return OperatorTable(tuple(found))


def test_first_divergence_is_named(folder: Path) -> None:
    with OfflineEngine(fake(folder)) as offline:
        checker = checked(offline, folder)
        decider = checker._decider
        checker._decider = dataclasses.replace(decider, table=broken(decider.table, "add_rms_norm"))
        offline.generate([PROMPT], greedy(1))
        first = checker.divergences[0]
    assert first.op == "add_rms_norm"
    assert not first.verdict.ok
    assert first.verdict.conclusive
    assert "fake.add_rms_norm" in str(first)


def test_equal_answers_need_equal_tokens(folder: Path) -> None:
    """The tie rule can fail: a wrong token is no tie."""
    oracle = Oracle(tiny_models.make_hf_model())
    wanted = oracle.answer(PROMPT, 4)
    with OfflineEngine(fake(folder)) as offline, pytest.raises(AssertionError):
        assert_same(offline, oracle, PROMPT, [*wanted[:3], (wanted[3] + 1) % 384], wanted)


@pytest.mark.parametrize(
    ("flags", "chunk"),
    [
        ({"chunked_prefill_size": 256}, 256),
        ({"chunked_prefill_size": 256, "max_prefill_tokens": 100}, 100),
        ({"max_prefill_tokens": 30}, 30),
        ({"chunked_prefill_size": -1}, tiny_models.CONTEXT),
    ],
)
def test_chunks_keep_to_both_flags(folder: Path, flags: dict, chunk: int) -> None:
    opened = open_run(config(folder, backend="fake", **flags))
    assert opened.chunk == chunk
    assert opened.limits.step_tokens >= max(chunk, opened.limits.max_running)
    opened.close()


@pytest.mark.parametrize("name", ["llama", "gpt-oss", "deepseek3", "qwen3-next"])
def test_every_kind_of_attention_is_known_to_be_composed(name: str, tmp_path) -> None:
    path = write_family(tmp_path / "model", package_cases().settings(name))
    for primitives, small in (("false", False), ("true", True)):
        opened = open_run(fake(path, primitives_only=primitives))
        assert opened.composed_attention is small
        opened.close()


def test_tensors_that_nothing_reads_are_told(folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    shutil.copytree(folder, tmp_path / "more")
    (file,) = (tmp_path / "more").glob("*.safetensors")
    tensors = load_file(file)
    save_file({**tensors, "model.stray.weight": tensors["model.norm.weight"]}, file)
    lines: list[str] = []
    engine, _ = build_engine(config(tmp_path / "more", backend="fake"), lines.append)
    engine.close()
    assert any("does not take: 1 (model.stray.weight" in line for line in lines)
