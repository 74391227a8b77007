"""--check-ops as a user meets it: what is found, told and saved; and files of saved calls."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import crooked_chip
import tiny_models
from answers.equality import config, greedy
from anychip.__main__ import main
from anychip.config import ConfigError, ServeConfig
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, CallSpec
from anychip.contract.tensor import Tensor
from anychip.engine.build import checker_of
from anychip.engine.offline import OfflineEngine
from anychip.model.checkpoint import open_checkpoint
from anychip.ops.bind import BoundCall, BoundProgram
from anychip.ops.checked import CheckedRun
from anychip.ops.saved import load
from anychip.run.check import CheckCounts
from anychip.run.dense import dense_reader, parts_reader
from anychip.run.divergences import MOST_FILES, DivergenceLog

PROMPT = "hello there"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", autouse=True)
def crooked(tmp_path_factory):
    with crooked_chip.installed(tmp_path_factory.mktemp("site")):
        yield


def generate(folder: Path, kept: Path, *more: str) -> int:
    words = ["generate", "--model-path", str(folder), "--max-total-tokens", "1024"]
    words += ["--prompt", PROMPT, "--max-new-tokens", "3", "--check-ops"]
    return main([*words, "--check-ops-dir", str(kept), *more])


def wrong(*ops: str, **options: str) -> list[str]:
    pairs = {"wrong": "+".join(ops), **options}
    return ["--backend", "crooked", *(f"--chip-option={n}={v}" for n, v in pairs.items())]


def run_checked(folder: Path, kept: Path, **changes):
    """A checker after three steps, and the answer."""
    asked = config(folder, backend="crooked", check_ops=True, check_ops_dir=str(kept), **changes)
    with OfflineEngine(asked) as offline:
        (answer,) = offline.generate([PROMPT], greedy(3))
        return checker_of(offline.engine), answer


@pytest.mark.parametrize("backend", ["fake", "cpu"])
def test_sound_chip_is_told_to_be_sound(folder, tmp_path, capsys, caplog, backend) -> None:
    caplog.set_level("INFO")
    assert generate(folder, tmp_path / "kept", "--backend", backend) == 0
    assert caplog.text.count("none diverges") == 1
    assert "checking every operator of every step" in caplog.text
    assert "diverge" not in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_wrong_operator_is_named_saved_and_fails_the_command(
    folder, tmp_path, capsys, caplog
) -> None:
    kept = tmp_path / "new" / "kept"
    assert generate(folder, kept, *wrong("silu_and_mul")) == 1
    (file,) = kept.iterdir()
    layers = 2 * 3
    said = capsys.readouterr().err
    assert said.count(f"1 operator diverges: silu_and_mul (fake.silu_and_mul, {layers})") == 1
    assert "1 operator diverges" not in caplog.text
    (line,) = [r.getMessage() for r in caplog.records if "silu_and_mul diverges" in r.getMessage()]
    assert line.startswith("step 1, call ")
    assert f"anychip replay-op {file} --backend crooked --chip-option wrong=silu_and_mul" in line
    for word in ("fake.silu_and_mul", "relative L2", "limit", "control"):
        assert word in line
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    call = load(file)
    assert (call.op, call.implementation) == ("silu_and_mul", "fake.silu_and_mul")
    assert call.seen_on["chip"] == "crooked"
    assert call.seen_on["step"] == "1"


def test_long_run_says_how_far_it_is(folder, tmp_path, caplog, monkeypatch) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("anychip.run.check.TELL_EVERY_S", 0.0)
    assert generate(folder, tmp_path, "--backend", "fake", "--max-new-tokens", "5") == 0
    lines = [r.getMessage() for r in caplog.records if "checking: step" in r.getMessage()]
    assert [line.split(",")[0] for line in lines] == [f"checking: step {n}" for n in range(1, 6)]
    assert "--max-new-tokens 4 is enough" in caplog.text


def test_results_are_the_chips_own(folder, tmp_path) -> None:
    options = {"wrong": "silu_and_mul+rms_norm"}
    _, checked = run_checked(folder, tmp_path / "kept", chip_option=options)
    with OfflineEngine(config(folder, backend="crooked", chip_option=options)) as offline:
        (unchecked,) = offline.generate([PROMPT], greedy(3))
    assert checked.token_ids == unchecked.token_ids


def test_declared_tolerance_counts(folder, tmp_path) -> None:
    options = {"wrong": "silu_and_mul", "tolerance": "1e9"}
    checker, _ = run_checked(folder, tmp_path / "kept", chip_option=options)
    assert checker.divergences == []


def test_wrong_fused_operator_with_right_parts_is_itself_at_fault(folder, tmp_path) -> None:
    options = {"fused": "true", "wrong": "mlp_block"}
    checker, answer = run_checked(folder, tmp_path / "kept", chip_option=options)
    (found,) = checker.found.values()
    assert found.divergence.implementation == "crooked.mlp_block"
    assert "'mlp_block' itself is wrong" in str(found)
    with OfflineEngine(config(folder, backend="crooked", chip_option=options)) as offline:
        (unchecked,) = offline.generate([PROMPT], greedy(3))
    assert answer.token_ids == unchecked.token_ids


def test_wrong_part_of_a_wrong_fused_operator_is_named(folder, tmp_path) -> None:
    options = {"fused": "true", "wrong": "mlp_block+silu_and_mul"}
    checker, _ = run_checked(folder, tmp_path / "kept", chip_option=options)
    (found,) = checker.found.values()
    assert found.divergence.op == "mlp_block"
    assert "its part call" in found.unrolled
    assert "fake.silu_and_mul: silu_and_mul diverges" in found.unrolled


def test_fused_operator_that_the_user_chose_is_unrolled_too(folder, tmp_path) -> None:
    checker, _ = run_checked(
        folder,
        tmp_path / "kept",
        chip_option={"fused": "true", "wrong": "mlp_block"},
        op={"mlp_block": "crooked.mlp_block"},
    )
    (found,) = checker.found.values()
    assert "itself is wrong" in found.unrolled


def test_fused_operator_without_parts_says_that_it_cannot_be_unrolled(folder, tmp_path) -> None:
    options = {"fused": "true", "wrong": "mlp_block", "without": "silu_and_mul,silu"}
    checker, _ = run_checked(folder, tmp_path / "kept", chip_option=options)
    (found,) = checker.found.values()
    assert "unrolled: not possible: operator 'silu' is missing" in str(found)


def test_divergences_are_counted_and_their_files_bounded(folder, tmp_path, caplog) -> None:
    checker, _ = run_checked(folder, tmp_path, chip_option={"wrong": "rms_norm"})
    (found,) = checker.found.values()
    with OfflineEngine(config(folder, backend="fake")) as offline:
        keep = DivergenceLog(tmp_path / "many", offline.engine.runner._chip)
    told = [keep(found) for _ in range(MOST_FILES + 1)]
    assert len(list((tmp_path / "many").iterdir())) == MOST_FILES
    assert all("Saved: " in text for text in told[:-1])
    assert told[-1].startswith("Not saved: 8 files")


def test_folder_that_cannot_be_written_does_not_stop_the_run(folder, tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("")
    checker, answer = run_checked(
        folder, tmp_path / "file" / "kept", chip_option={"wrong": "rms_norm"}
    )
    assert answer.error is None
    assert [found.kept.partition(":")[0] for found in checker.found.values()] == ["Not saved"]
    assert "name another --check-ops-dir" in caplog.text


def test_folder_without_checks_is_refused() -> None:
    with pytest.raises(ConfigError, match="add --check-ops"):
        ServeConfig(check_ops_dir="/x")
    assert ServeConfig(check_ops=True, cache_dir="/c").check_ops_path == Path("/c/divergences")


def test_check_that_could_not_fail_is_counted() -> None:
    """Nothing distinguishes a product of zeros from that of other zeros."""
    chip = crooked_chip.CrookedChip({o.name: o.default for o in crooked_chip.CrookedChip.options})
    a, b, y = (Tensor((4,), DType.FLOAT32, buffer=chip.memory.allocate(16)) for _ in range(3))
    for tensor in (a, b):
        chip.memory.copy_in(tensor, np.zeros(4, np.float32).data)
    spec = CallSpec("mul", {"a": a.spec, "b": b.spec}, {"y": y.spec}, {})
    call, (implementation,) = Call(spec, {"a": a, "b": b}, {"y": y}), chip.operators.of("mul")
    bound = BoundCall(call, implementation, implementation.prepare(call))
    run = CheckedRun(chip.memory, dense=lambda weight: np.zeros(0))
    assert run.run(BoundProgram((bound,), {})) is None
    assert run.inconclusive == Counter({"mul": 1})
    counts = CheckCounts()
    counts.add(run)
    assert str(counts) == "checked 1 calls: none diverges; 1 checks were inconclusive (mul): " + (
        "they have no input whose change would show"
    )


def test_dense_weights_are_those_that_the_chip_was_given(folder) -> None:
    checkpoint = open_checkpoint(folder)
    name = next(s.name for s in checkpoint.sources if len(s.parts) == 3)
    dense = dense_reader(checkpoint)
    whole = dense(name)
    assert whole.shape[0] == sum(p.shape[0] for p in parts_reader(checkpoint)(name))
    assert dense(name) is whole
    assert dense_reader(checkpoint, kept_bytes=0)(name) is not dense(name)
    rounded = dense_reader(checkpoint, {name: "bfloat16"})(name)
    assert 0 < np.abs(rounded - whole).max() < 2**-8 * np.abs(whole).max()
    with pytest.raises(KeyError):
        dense("no such weight")
