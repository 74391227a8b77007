"""Models fetched by the real client of Hugging Face, from a hub on the loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from anychip.model.hub.errors import HubError
from anychip.model.hub.fetch import fetch
from anychip.model.hub.messages import Wanted
from hub_server import COMMIT, Hub, HubServer, Told, write_cache

ID = "org/tiny"
INDEX = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "m-1.safetensors": b"1" * 300_000,
    "m-2.safetensors": b"2" * 200_000,
    "consolidated.safetensors": b"3" * 1000,
    "pytorch_model.bin": b"4" * 1000,
    "modeling_tiny.py": b"raise SystemExit",
    "onnx/config.json": b"{}",
    "README.md": b"#",
}
READ = {name for name in FOLDER if name.startswith(("config", "token", "chat", "model.s", "m-"))}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The client's home, empty, and no variable of the tester's."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def hub(home, monkeypatch):
    hub = Hub({ID: dict(FOLDER)})
    with HubServer(hub) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield hub


@pytest.fixture
def no_hub(home, monkeypatch):
    """An address where nobody listens."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")


def want(**changes) -> Wanted:
    return Wanted(**{"source": "huggingface", "id": ID, **changes})


def refused(told: str, **changes) -> str:
    with pytest.raises(HubError, match=told) as caught:
        fetch(want(**changes), Told())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_with_what_we_read_and_nothing_else(hub, home):
    told = Told()
    folder = fetch(want(), told)
    assert folder.parent.parent == home / "hub" / "models--org--tiny"
    assert names(folder) == READ == hub.fetched()
    assert all((folder / name).read_bytes() == FOLDER[name] for name in READ)
    assert told.amounts[-1] == (500_000, 500_000) and told.amounts[0][1] == 500_000
    assert not told.notes

    before = len(hub.asked)
    again = Told()
    assert fetch(want(), again) == folder
    assert not [line for line in hub.asked[before:] if "/resolve/" in line]
    assert not again.amounts


def test_progress_is_what_has_come(hub):
    """The first file is here and the second has not begun: the client writes 10 MB at once."""
    hub.held["m-2.safetensors"] = held = threading.Event()

    class Half(Told):
        def progress(self, name: str, done: int, total: int) -> None:
            super().progress(name, done, total)
            if done == len(FOLDER["m-1.safetensors"]):
                held.set()

    told = Half()
    fetch(want(), told)
    dones = [done for done, _ in told.amounts]
    assert 300_000 in dones and dones == sorted(dones) and dones[-1] == 500_000


def test_one_gguf_file_comes_alone(hub, home):
    hub.models[ID] = {"m-Q4_0.gguf": b"GGUF" * 900, "m-Q8_0.gguf": b"GGUF" * 1800}
    path = fetch(want(file="Q8_0"), Told())
    assert path.name == "m-Q8_0.gguf" and path.read_bytes() == b"GGUF" * 1800
    assert hub.fetched() == {"m-Q8_0.gguf"}
    refused(r"several \.gguf files; name one of them: org/tiny:Q4_0 \(.*\), org/tiny:Q8_0 ")


def test_a_tokenizer_comes_without_weights(hub):
    folder = fetch(want(tokenizer=True), Told())
    assert "tokenizer.json" in names(folder)
    assert not [name for name in names(folder) if name.endswith(".safetensors")]


def test_another_folder_and_another_revision(hub, tmp_path):
    folder = fetch(want(revision="v1", cache_dir=str(tmp_path / "here")), Told())
    assert folder.parent.parent == tmp_path / "here" / "models--org--tiny"
    assert (folder.parent.parent / "refs" / "v1").read_text() == COMMIT
    refused("has no such revision; leave out --revision", revision="v9")


def test_what_the_hub_says_of_a_model(hub):
    refused("org/other: Hugging Face has no such model, and there is no such file", id="org/other")
    hub.gated.add(ID)
    refused(r"gated: accept its terms at http://127.*/org/tiny, then set HF_TOKEN")


def test_a_hub_that_is_not_there(no_hub, home):
    refused(r"cannot be reached .*the cache has no copy of it; start once with a network")
    snapshot = write_cache(home / "hub", ID, FOLDER)
    told = Told()
    assert fetch(want(), told) == snapshot
    assert len(told.notes) == 1 and "cannot be reached" in told.notes[0]
    assert f"taken from the cache: {snapshot}" in told.notes[0]


def test_a_hub_out_of_order_is_not_waited_for_where_the_cache_has_it(hub, home):
    hub.down = True
    snapshot = write_cache(home / "hub", ID, FOLDER)
    told = Told()
    assert fetch(want(), told) == snapshot
    assert "503" in told.notes[0]


def test_offline_asks_nobody(hub, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused(r"HF_HUB_OFFLINE is set.*the cache has no copy of it")
    snapshot = write_cache(home / "hub", ID, FOLDER)
    assert fetch(want(), Told()) == snapshot
    refused("the cache has no copy", revision="v1")
    assert fetch(want(revision=COMMIT), Told()) == snapshot
    assert hub.asked == []


def test_hf_hub_cache_is_another_place(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = write_cache(tmp_path / "cache", ID, {"m-Q4_0.gguf": b"GGUF"})
    assert fetch(want(), Told()) == snapshot / "m-Q4_0.gguf"
    assert fetch(want(file="q4_0"), Told()) == snapshot / "m-Q4_0.gguf"
    refused(r"copy in .* is not whole: no \.gguf file fits ':Q8_0'", file="Q8_0")


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        ("m-2.safetensors", r"is not whole: .*names m-2\.safetensors, which is not there"),
        ("model.safetensors.index.json", r"is not whole: it has neither model\.safetensors nor"),
        ("config.json", r"is not whole: it has safetensors, but no config\.json"),
    ],
)
def test_half_a_copy_is_not_used(home, monkeypatch, left_out, told):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write_cache(home / "hub", ID, {n: body for n, body in FOLDER.items() if n != left_out})
    assert "fetch the rest" in refused(told)


def test_a_link_to_a_blob_that_is_gone_counts_as_not_there(home, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snapshot = write_cache(home / "hub", ID, FOLDER)
    (snapshot / "m-2.safetensors").resolve().unlink()
    refused(r"is not whole: .*names m-2\.safetensors")


def test_a_download_that_breaks_off_goes_on_at_the_next_start(hub, home):
    hub.cut["m-2.safetensors"] = 1000
    told = refused(r"broke off the download .*whole files are kept in .*: start again")
    assert str(home) in told
    hub.cut.clear()
    before = len(hub.asked)
    folder = fetch(want(), Told())
    assert (folder / "m-2.safetensors").read_bytes() == FOLDER["m-2.safetensors"]
    fetched = [
        line for line in hub.asked[before:] if line.startswith("GET") and "/resolve/" in line
    ]
    assert all("m-2" in line for line in fetched) and fetched


def test_a_folder_that_takes_nothing_is_told(hub, tmp_path):
    (tmp_path / "file").write_text("")
    refused(r"org/tiny", cache_dir=str(tmp_path / "file"))


def test_a_missing_package_is_told(hub, tmp_path, monkeypatch):
    (tmp_path / "modelscope.py").write_text("raise ImportError('No module named modelscope')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    refused(r"needs a package that is not here .*anychip\[modelscope\]", source="modelscope")


def test_a_process_that_breaks_down_is_told(hub, tmp_path, monkeypatch):
    (tmp_path / "huggingface_hub.py").write_text("import os\nprint('bad wheel')\nos._exit(3)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    refused("the process that fetches it broke down")


def test_no_download_outlives_who_asked(hub):
    """A killed program leaves no process that fetches."""
    hub.held["m-1.safetensors"] = threading.Event()
    code = (
        "from anychip.model.hub.fetch import fetch; from anychip.model.hub.messages import Wanted\n"
        "class W:\n"
        "    def progress(self, name, done, total): print(done, flush=True)\n"
        "    note = progress\n"
        f"fetch(Wanted('huggingface', {ID!r}), W())"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        program.stdout.readline()
        children = _children(program.pid)
        assert len(children) == 1
        program.send_signal(signal.SIGKILL)
        program.wait()
        deadline = time.monotonic() + 30
        while _alive(children[0]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _alive(children[0])
    finally:
        hub.held["m-1.safetensors"].set()
        program.kill()
        program.communicate()


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
