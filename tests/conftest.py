"""Being here puts tests/ on the import path, so that any test can `import tiny_models`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anychip.model.demo import demo_model_path


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """SmolLM2-135M-Instruct; DEMO_MODEL names the file where it is not in the cache."""
    named = os.environ.get("DEMO_MODEL")
    return Path(named) if named else demo_model_path(Path.home() / ".cache" / "anychip")


@pytest.fixture(autouse=True)
def no_set_width(monkeypatch) -> None:
    """Tables are as wide as where nothing is set: pytest's own processes set COLUMNS."""
    monkeypatch.delenv("COLUMNS", raising=False)
