"""A configuration whose model lies here: what a hub's name becomes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from anychip.config import ConfigError, ServeConfig
from anychip.model.hub.errors import HubError
from anychip.run.local_model import Lines, local_model
from hub_server import COMMIT, write_cache

ID = "org/tiny"
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"123"}


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache with one model at `main`, and no network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_cache(tmp_path / "home" / "hub", ID, FILES)
    return tmp_path / "home" / "hub"


def test_a_hubs_model_is_served_under_the_name_that_was_typed(cache):
    said: list[str] = []
    config = local_model(ServeConfig(model_path=ID), Lines(said.append))
    assert config.model_path == str(cache / "models--org--tiny" / "snapshots" / COMMIT)
    assert config.served_model_name == ID
    assert local_model(config) == config
    assert len(said) == 1 and "HF_HUB_OFFLINE is set" in said[0]
    named = ServeConfig(model_path=ID, served_model_name="mine")
    assert local_model(named).served_model_name == "mine"


def test_the_log_tells_where_nobody_watches(cache, caplog):
    caplog.set_level("INFO", "anychip.hub")
    local_model(ServeConfig(model_path=ID))
    assert "taken from the cache" in caplog.text


def test_a_path_that_is_here_wins(cache, tmp_path):
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    config = ServeConfig(model_path=ID)
    assert local_model(config) == config
    assert not (tmp_path / "org" / "other").exists()
    with pytest.raises(HubError, match="the cache has no copy"):
        local_model(ServeConfig(model_path="org/other"))


def test_where_nothing_is_fetched_a_folder_for_it_is_refused_and_a_hub_told(cache, tmp_path):
    (tmp_path / "here").mkdir()
    said: list[str] = []
    with pytest.raises(ConfigError, match="--download-dir: here is here already, so nothing is"):
        local_model(ServeConfig(model_path="here", download_dir="elsewhere"))
    asked = ServeConfig(model_path="here", model_source="modelscope")
    local = local_model(asked, Lines(said.append))
    assert said == ["here: it is here already: modelscope is not asked"]
    assert local_model(local, Lines(said.append)) == local and len(said) == 1
    fetched = local_model(ServeConfig(model_path=ID, download_dir=str(cache)))
    assert local_model(fetched) == fetched  # where it lies it is not fetched again


@pytest.mark.parametrize("text", [f"{ID}@{COMMIT}", ID])
def test_a_revision_by_either_spelling(cache, text):
    revision = None if "@" in text else COMMIT
    config = local_model(ServeConfig(model_path=text, revision=revision))
    assert config.model_path.endswith(COMMIT) and config.revision is None


def test_revisions_that_mean_nothing_are_refused(cache, tmp_path):
    for path, told in [
        (f"{ID}@v1", "--model-path says org/tiny@v1; leave one out"),
        (str(tmp_path), "is no model of a hub; leave it out"),
        (None, r"no model is named; add --model-path ORG/NAME"),
    ]:
        with pytest.raises(ConfigError, match=rf"--revision: .*{told}"):
            local_model(ServeConfig(model_path=path, revision="v2"))


def test_the_tokenizer_may_be_a_hubs_too(cache, tmp_path):
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF")
    config = local_model(ServeConfig(model_path=str(gguf), tokenizer_path=ID))
    assert config.model_path == str(gguf) and config.served_model_name is None
    assert (Path(config.tokenizer_path) / "tokenizer.json").is_file()


def test_download_dir_is_the_cache(cache, tmp_path):
    snapshot = write_cache(tmp_path / "mine", "org/other", FILES)
    config = ServeConfig(model_path="org/other", download_dir=str(tmp_path / "mine"))
    assert local_model(config).model_path == str(snapshot)


def test_lines_tell_the_start_and_the_end_with_the_rate():
    said: list[str] = []
    lines = Lines(said.append)
    for done in (1 << 20, 2 << 20, 3 << 20, 5 << 20):
        lines.progress(ID, done, 5 << 20)
    assert said[0] == "fetching org/tiny: 4 MiB"
    assert len(said) == 2
    assert said[1].startswith("  org/tiny: 5 of 5 MiB, ") and said[1].endswith(" MiB/s")
