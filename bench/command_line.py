"""What the benches' command lines share: numbers above 0, and packages that have to be there."""

from __future__ import annotations

import argparse
import math
import sys
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def count(text: str) -> int:
    """A whole number above 0. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0. Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return found


def lacking(*packages: str) -> list[str]:
    """Those that this interpreter does not have. Imports none of them."""
    return [name for name in packages if find_spec(name) is None]


def need(*packages: str, instead: str = "") -> None:
    """Raises SystemExit, before anything is measured, where one is not installed.

    instead: what can be done without it.
    """
    gone = lacking(*packages)
    if not gone:
        return
    named = " and ".join(filter(None, (", ".join(gone[:-1]), gone[-1])))
    sources = [f"-r {REPOSITORY}/requirements/test.txt"]
    sources += [f"-e {REPOSITORY}"] if "anychip" in gone else []
    raise SystemExit(
        f"{Path(sys.argv[0]).name} needs {named}, not installed for {sys.executable}; "
        f"install: {sys.executable} -m pip install {' '.join(sources)}"
        + (f"; or {instead}" if instead else "")
    )


def need_model(path: Path) -> None:
    """Raises SystemExit where there is neither a file nor a folder."""
    if not path.exists():
        raise SystemExit(f"there is no model at {path}: give a GGUF file or a folder")
