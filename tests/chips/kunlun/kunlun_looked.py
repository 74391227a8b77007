"""The commands of a user, each in a process of its own, on a tree that is sound or is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim_trees import HOME, SimTree

LIMIT_S = 180.0
"""For one command, the shim's first build included."""
RED, YELLOW, GREEN = "bad", "unknown", "good"


@dataclass(frozen=True)
class Looked:
    """What the doctor found, those aside that were not looked at, and its exit code."""

    code: int
    found: tuple[Mapping[str, str], ...]

    def lines(self, verdict: str) -> tuple[Mapping[str, str], ...]:
        return tuple(f for f in self.found if f["verdict"] == verdict)

    def only(self, verdict: str, name: str) -> tuple[str, str]:
        """Text and step of the one line of that verdict and name."""
        (line,) = (f for f in self.lines(verdict) if f["name"] == name)
        assert verdict == GREEN or line["step"], line
        return line["text"], line["step"]

    def assert_sound(self) -> None:
        """Nothing is red."""
        assert self.lines(RED) == () and self.code == 0, self.lines(RED)

    @property
    def red(self) -> set[str]:
        return {f["name"] for f in self.lines(RED)}


def environment(tree: SimTree, variables: Mapping[str, str]) -> dict[str, str]:
    """One visible card, no folder of libraries on the shell's path, unless told otherwise."""
    root = {"KUNLUN_SDK_ROOT": str(tree.root / "sdk"), "LD_LIBRARY_PATH": ""}
    root |= {"KUNLUN_RUNTIME_LIB": str(tree.root / "runtime" / "lib"), "XPU_VISIBLE_DEVICES": "0"}
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return tree.environment(**root | threads | variables)


def command(*words: str) -> list[str]:
    kept = ["--backend", "kunlun", "--build-dir", str(HOME / "shim")]
    return [sys.executable, "-m", "anychip", words[0], *kept, *words[1:]]


def ended(tree: SimTree, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`anychip WORDS` on this tree, ended within the limit."""
    return subprocess.run(
        command(*words),
        env=environment(tree, variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def examined(tree: SimTree, *words: str, **variables: str) -> Looked:
    """What `anychip doctor WORDS` finds."""
    done = ended(tree, "doctor", "--json", *words, **variables)
    assert done.returncode in (0, 1), done.stderr
    found = [f for f in json.loads(done.stdout) if not f["text"].startswith("not looked at")]
    return Looked(done.returncode, tuple(found))


def settings_of(folder: Path, **changes: Any) -> Path:
    """A Hugging Face folder whose config.json says something else as well."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return folder
