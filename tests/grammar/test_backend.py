"""Which backend follows grammars: what is not installed stops the start, by its flag."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anychip.config import ServeConfig
from anychip.engine.build import build_engine
from anychip.engine.messages import StartError
from anychip.grammar.backend import backend_complaint


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes a version of xgrammar look installed."""

    def make(version):
        folder = tmp_path / f"xgrammar-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: xgrammar\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return make


def test_the_default_needs_nothing_more():
    assert backend_complaint("llguidance") is backend_complaint("none") is None


@pytest.mark.parametrize("version", ["0.2.9", "0.2.11", "0.2.10.post1"])
def test_known_versions_are_taken(installed, version):
    installed(version)
    assert backend_complaint("xgrammar") is None


@pytest.mark.parametrize("version", ["0.1.33", "0.2.8", "0.3.0", "1.0"])
def test_other_versions_stop_the_start_before_a_model_is_looked_for(installed, version):
    installed(version)
    config = ServeConfig(model_path="/nowhere", backend="cpu", grammar_backend="xgrammar")
    with pytest.raises(StartError, match="--grammar-backend") as caught:
        build_engine(config, lambda line: None)
    assert f"xgrammar {version} is installed" in str(caught.value)
    assert "pip install 'anychip[xgrammar]'" in str(caught.value)


def test_what_is_not_installed_is_told_with_the_command():
    """In a process that finds no packages but ours: here it may be installed."""
    program = (
        "import sys; from anychip.grammar import backend; "
        "sys.path[:] = []; print(backend.backend_complaint('xgrammar'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "xgrammar is not installed; pip install 'anychip[xgrammar]'" in done.stdout


def test_the_default_does_not_import_what_the_extra_brings():
    program = (
        "import sys; from anychip.grammar.vocabulary import Vocabulary; "
        "from anychip.grammar.compiler import GrammarCompiler; "
        "GrammarCompiler(Vocabulary((b'a', b''), {'<eos>': 1}, (1,), 2)); "
        "print(sorted({'torch', 'xgrammar', 'tvm_ffi'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
