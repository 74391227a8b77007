"""Being here puts tests/ on the import path, so that any test can `import tiny_models`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from anychip.model.demo import demo_model_path
from long_files import LONG


def pytest_configure() -> None:
    """Take Ctrl-C even where a script has put the tests in the background: the shell has it ignored
    there, and every program that a test starts and interrupts would ignore it too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where files are dealt out to several processes, long ones go first: one that was begun last
    would be waited for by all. scripts/test keeps that order."""
    if hasattr(config, "workerinput"):
        here = Path(__file__).parent
        ranks = {here / name: rank for rank, name in enumerate(LONG)}
        items.sort(key=lambda item: ranks.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """SmolLM2-135M-Instruct; DEMO_MODEL names the file where it is not in the cache."""
    named = os.environ.get("DEMO_MODEL")
    return Path(named) if named else demo_model_path(Path.home() / ".cache" / "anychip")


@pytest.fixture(autouse=True)
def no_set_width(monkeypatch) -> None:
    """Tables are as wide as where nothing is set: pytest's own processes set COLUMNS."""
    monkeypatch.delenv("COLUMNS", raising=False)
