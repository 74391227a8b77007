"""What cannot be started, through the command and the real engine: one line, and which code."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_models
from anychip.__main__ import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    return tiny_models.make_gguf(tmp_path_factory.mktemp("gguf"))


def refused(capsys, path: Path | str, *flags: str) -> str:
    """The one line that `anychip generate` ends with. A traceback would be raised here."""
    words = ["generate", "--model-path", str(path), "--prompt", "a", "--max-tokens", "2", *flags]
    assert main([*words, "--max-total-tokens", "512", "--log-level", "error"]) == 1
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert told.err.startswith("anychip: error: ")
    return told.err


def copied(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to / "model"))


def with_config(folder: Path, to: Path, **changes) -> Path:
    model = copied(folder, to)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, **changes}))
    return model


def without(folder: Path, to: Path, name: str) -> Path:
    model = copied(folder, to)
    (model / name).unlink()
    return model


def only_a_pickle(folder: Path, to: Path) -> Path:
    model = without(folder, to, "model.safetensors")
    (model / "pytorch_model.bin").write_bytes(b"\x80\x02}.")
    return model


def cut(folder: Path, to: Path) -> Path:
    model = copied(folder, to)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50_000])
    return model


FOLDERS = {
    "is missing": lambda folder, to: without(folder, to, "config.json"),
    "architecture 'MambaForCausalLM' is not supported": lambda folder, to: with_config(
        folder, to, architectures=["MambaForCausalLM"], model_type="mamba"
    ),
    "context_length is 1; a prompt and its answer take 2 or more": lambda folder, to: with_config(
        folder, to, max_position_embeddings=1
    ),
    "rope scaling 'spiral' is not supported": lambda folder, to: with_config(
        folder, to, rope_parameters={"rope_type": "spiral", "factor": 4.0, "rope_theta": 1e4}
    ),
    "quantization 'hqq' is not supported": lambda folder, to: with_config(
        folder, to, quantization_config={"quant_method": "hqq", "bits": 4}
    ),
    "layers is 1000000000": lambda folder, to: with_config(folder, to, num_hidden_layers=10**9),
    "pickle files (pytorch_model.bin)": only_a_pickle,
    "it is cut off or damaged; fetch the model again": cut,
    "is not valid JSON": lambda folder, to: broken_config(folder, to),
}


def broken_config(folder: Path, to: Path) -> Path:
    model = copied(folder, to)
    (model / "config.json").write_text('{"a":')
    return model


@pytest.mark.parametrize("text", FOLDERS)
def test_folders_that_are_no_model_of_ours(folder, tmp_path, capsys, text):
    model = FOLDERS[text](folder, tmp_path)
    told = refused(capsys, model, "--backend", "fake")
    assert text in told and str(model) in told


def test_a_missing_shard_is_named(tmp_path, capsys):
    model = tiny_models.make_hf_folder(tmp_path / "model", shards=3)
    second = sorted(model.glob("*.safetensors"))[1]
    second.unlink()
    capsys.readouterr()  # the progress of writing the shards
    told = refused(capsys, model, "--backend", "fake")
    assert f"its file '{second.name}' is missing; fetch the model again" in told


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        (0, "is empty"),
        (3000, "more than the file can hold; fetch it again"),
        (-60_000, "cut off or damaged; fetch the model again"),
    ],
)
def test_a_cut_gguf_file(gguf, tmp_path, capsys, keep, text):
    file = tmp_path / "cut.gguf"
    raw = gguf.read_bytes()
    file.write_bytes(raw[:keep])
    told = refused(capsys, file, "--backend", "fake")
    assert text in told and str(file) in told


def test_random_bytes_and_nothing_at_all(tmp_path, capsys):
    noise = tmp_path / "noise.gguf"
    noise.write_bytes(bytes(range(256)) * 40)
    assert "not a GGUF file" in refused(capsys, noise, "--backend", "fake")
    assert str(tmp_path / "none") in refused(capsys, tmp_path / "none", "--backend", "fake")
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refused(capsys, tmp_path / "empty", "--backend", "fake")


def test_a_format_that_we_do_not_read_is_named(gguf, tmp_path, capsys):
    file, raw = tmp_path / "k.gguf", bytearray(gguf.read_bytes())
    name = b"blk.0.attn_q.weight"
    after = raw.find(name) + len(name)
    (dimensions,) = struct.unpack_from("<I", raw, after)
    struct.pack_into("<I", raw, after + 4 + 8 * dimensions, 15)  # GGML_TYPE_Q8_K
    file.write_bytes(raw)
    told = refused(capsys, file, "--backend", "fake")
    assert "tensor 'blk.0.attn_q.weight': format q8_K is not supported; supported: " in told
    assert "convert the model to one of them" in told


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--backend", "cuda"), "no chip 'cuda' is installed; installed are: cpu, fake"),
        (("--chip-option", "thread=2"), "has no option 'thread'; it has: build_dir, isa"),
        (("--chip-option", "threads=x"), "option threads=x must be int"),
        (("--chip-option", "memory=2X"), "with K, M or G behind"),
        (("--backend", "fake", "--device-index", "5"), "has no device 5; it has: 0"),
        (("--backend", "fake", "--page-size", "3"), "has page sizes"),
        (("--backend", "fake", "--context-length", "9999"), "made for 512 positions"),
        (("--backend", "fake", "--op", "no=composed"), "no operator 'no' in the catalogue"),
        (("--backend", "fake", "--op", "rms_norm=x"), "'rms_norm' can be served by"),
    ],
)
def test_chips_and_options_that_are_not_there(folder, capsys, flags, text):
    assert text in refused(capsys, folder, *flags)


def test_a_context_that_does_not_fit_is_refused_with_numbers(folder, capsys):
    flags = ("--backend", "fake", "--chip-option", "memory=800K", "--context-length", "512")
    small = ("--max-running-requests", "2", "--chunked-prefill-size", "16")
    told = refused(capsys, folder, *flags, *small)
    assert "not enough memory for one sequence of 512 tokens" in told
    assert "weights" in told and "Lower --context-length" in told


@pytest.mark.skipif(shutil.which("g++") is None, reason="nothing is compiled without g++")
def test_a_cache_that_cannot_be_written_names_the_way_out(folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    told = refused(capsys, folder, "--backend", "cpu", "--cache-dir", str(tmp_path / "file"))
    assert "is not writable" in told and "name another with --build-dir or --cache-dir" in told
    assert "kernel failure" not in told


def test_without_a_compiler_it_is_slow_and_says_so(folder, tmp_path, capsys, caplog, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    flags = ("--cache-dir", str(tmp_path / "cache"), "--chip-option")
    assert "no C++ compiler" in refused(capsys, folder, *flags, "kernels=native")
    words = ["generate", "--model-path", str(folder), "--prompt", "a", "--max-tokens", "2"]
    assert main([*words, "--max-total-tokens", "512", *flags, "kernels=auto"]) == 0
    assert "many times slower than kernels: no C++ compiler" in caplog.text


@pytest.mark.parametrize("missing", ["model", "chip"])
def test_the_server_ends_with_one_line_and_code_1(folder, tmp_path, missing):
    model = tmp_path / "none" if missing == "model" else folder
    words = ["serve", "--port", "0", "--model-path", str(model), "--backend", "nochip"]
    ended = subprocess.run(
        [sys.executable, "-m", "anychip", *words], capture_output=True, text=True, timeout=60
    )
    told = str(model) if missing == "model" else "no chip 'nochip' is installed"
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "cannot start: " in ended.stderr and told in ended.stderr
