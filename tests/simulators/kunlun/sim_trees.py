"""Whole trees by the builder, made once for all test processes, and children that use them."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from anychip_sim_kunlun.libraries import NATIVE

TABLES = Path(__file__).parents[3] / "src" / "anychip" / "chips" / "kunlun" / "kernels"
HOME = Path.home() / ".cache" / "anychip" / "sim" / "kunlun-tests"
"""Kept between sessions: the builder itself sees what has to be made again."""


def build(prefix: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The ended builder, whatever its end was."""
    command = [sys.executable, "-m", "anychip_sim_kunlun", "build", "--prefix", str(prefix)]
    return subprocess.run(
        [*command, *flags],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def built(prefix: Path, *flags: str) -> str:
    """What a build said that must end well."""
    ended = build(prefix, *flags)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@dataclass(frozen=True)
class SimTree:
    """A tree, and a folder with accounts of its own for the processes that use it."""

    root: Path
    state: Path

    def environment(self, **variables: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("XPU")}
        folders = f"{self.root}/runtime/lib:{self.root}/sdk/lib"
        return clean | {"LD_LIBRARY_PATH": folders, "XPUSIM_STATE": str(self.state)} | variables

    def start(self, code: str, **variables: str) -> subprocess.Popen[str]:
        """A child that runs `code`; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env=self.environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, code: str, **variables: str) -> str:
        """Standard output of a child that must end well."""
        return self.call([sys.executable, "-c", code], **variables)

    def smi(self, *flags: str) -> str:
        """What xpu_smi prints."""
        return self.call([str(self.root / "bin" / "xpu_smi"), *flags])

    def call(self, command: list[str], **variables: str) -> str:
        ended = subprocess.run(
            command,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 0, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


@cache
def shared_tree(*flags: str) -> Path:
    """The tree of these flags, whole and current; nobody may write to it or use its own board."""
    name = hashlib.sha256("\n".join((str(NATIVE), *flags)).encode()).hexdigest()[:16]
    built(HOME / name, *flags)
    return HOME / name


def with_accounts(tree: Path, folder: Path) -> SimTree:
    """The tree with a fresh board in `folder`, so that no test sees another's accounts."""
    folder.mkdir(parents=True, exist_ok=True)
    if (tree / "state" / "board").exists():
        shutil.copy(tree / "state" / "board", folder / "board")
    return SimTree(tree, folder)
