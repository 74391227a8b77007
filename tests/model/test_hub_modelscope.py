"""Models fetched by ModelScope's client, where it is installed, from a hub on the loopback."""

from __future__ import annotations

import os

import pytest

from anychip.model.hub.errors import HubError
from anychip.model.hub.fetch import fetch
from anychip.model.hub.messages import Wanted
from hub_server import Hub, HubServer, Told

pytest.importorskip("modelscope", reason="an extra; run where anychip[modelscope] is installed")

ID = "org/tiny"
FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": b"1" * 300_000,
    "consolidated.safetensors": b"2" * 1000,
    "modeling_tiny.py": b"raise SystemExit",
}
READ = {"config.json", "tokenizer.json", "model.safetensors"}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("MODELSCOPE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "cache"))
    hub = Hub({ID: dict(FOLDER)})
    with HubServer(hub) as server:
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", server.url)
        yield hub


def want(**changes) -> Wanted:
    return Wanted(**{"source": "modelscope", "id": ID, **changes})


def refused(told: str, **changes) -> None:
    with pytest.raises(HubError, match=told) as caught:
        fetch(want(**changes), Told())
    assert "\n" not in str(caught.value)


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file() and path.name[0] != "."}


def test_a_folder_comes_with_what_we_read_and_then_from_the_cache(hub, tmp_path, monkeypatch):
    told = Told()
    folder = fetch(want(), told)
    assert names(folder) == READ and folder.is_relative_to(tmp_path / "cache")
    assert (folder / "model.safetensors").read_bytes() == FOLDER["model.safetensors"]
    assert told.amounts[-1] == (300_000, 300_000) and not told.notes

    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    again = Told()
    assert fetch(want(), again) == folder
    assert len(again.notes) == 1 and "cannot be reached" in again.notes[0]


def test_one_gguf_file_comes_alone(hub):
    hub.models[ID] = {"m-Q4_0.gguf": b"GGUF" * 900, "m-Q8_0.gguf": b"GGUF" * 1800}
    path = fetch(want(file="Q8_0"), Told())
    assert path.read_bytes() == b"GGUF" * 1800
    assert names(path.parent) == {"m-Q8_0.gguf"}


def test_another_folder_and_another_revision(hub, tmp_path):
    folder = fetch(want(revision="v1", cache_dir=str(tmp_path / "here")), Told())
    assert folder.is_relative_to(tmp_path / "here") and names(folder) == READ


def test_what_the_hub_says(hub):
    refused("ModelScope has no such model or revision", id="org/other")
    refused("ModelScope has no such model or revision", revision="v9")


def test_no_hub_and_no_copy(hub, monkeypatch):
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    refused("cannot be reached .*the cache has no copy of it; start once with a network")
