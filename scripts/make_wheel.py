"""A wheel with compiled kernels: the plain one, libraries beside the cpu chip, an honest tag.

The plain wheel comes from the sdist, so that both are known to be whole. Libraries are compiled
from the sources in that wheel, kept by what they are made of, and linked so that they need nothing
but the C library. The oldest glibc that has all their symbols gives the platform tag; auditwheel
must agree. Called by scripts/wheel, which has installed what this needs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from anychip.chips.cpu.build import wheel_order
from anychip.chips.cpu.build_isa import isas_of
from anychip.contract.compile import compile_library, find_compiler
from anychip.contract.errors import ChipError
from anychip.contract.prebuilt import platform_folder, write_manifest

ROOT = Path(__file__).resolve().parents[1]
COMPILERS = {"x86_64": "g++", "aarch64": "aarch64-linux-gnu-g++"}
CACHE = Path("~/.cache/anychip/wheel").expanduser()
CHIP = Path("anychip", "chips", "cpu")


def run(*words: str | Path) -> str:
    """What a command prints. Raises SystemExit with what it said on failure."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    print(f"wheel: {text}", file=sys.stderr, flush=True)


def plain_wheel(folder: Path) -> Path:
    """The wheel without kernels, built from the sdist, which lies beside it."""
    say("sdist and plain wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpacked(wheel: Path, folder: Path) -> Path:
    """Where the wheel's files are, with the folder of its name and version."""
    run("wheel", "unpack", "--dest", folder, wheel)
    (found,) = folder.iterdir()
    return found


def add_kernels(tree: Path, machine: str, isas: Iterable[str], compiler: str) -> tuple[int, ...]:
    """Compile them into the unpacked wheel; the glibc that they need."""
    target = tree / CHIP / "prebuilt" / platform_folder(machine)
    target.mkdir(parents=True)
    made = {}
    for isa in isas:
        order = wheel_order(isa, tree / CHIP / "kernels", machine)
        built = compile_library(order, cache_dir=CACHE, compiler=compiler, progress=say)
        library = target / f"{order.name}.so"
        library.write_bytes(built.read_bytes())
        library.chmod(0o755)
        say(f"{library.name}: {library.stat().st_size:,} bytes, glibc {dotted(needs(library))}")
        made[library] = order
    oldest = max(needs(library) for library in made)
    version = find_compiler("cpu", compiler).version
    write_manifest(target, made, compiler=version, glibc=oldest)
    return oldest


def needs(library: Path) -> tuple[int, ...]:
    """The newest version of glibc's symbols that it asks for."""
    told = re.findall(r"Name: GLIBC_([\d.]+)", run("readelf", "--version-info", "--wide", library))
    return max(tuple(int(part) for part in version.split(".")) for version in told)


def dotted(version: Iterable[int]) -> str:
    return ".".join(map(str, version))


def retag(tree: Path, tag: str) -> None:
    """The wheel is for one platform, whatever the Python."""
    (record,) = tree.glob("*.dist-info/WHEEL")
    text = record.read_text(encoding="utf-8")
    text = re.sub(r"Root-Is-Purelib: true", "Root-Is-Purelib: false", text)
    text = re.sub(r"Tag: .*", f"Tag: py3-none-{tag}", text)
    record.write_text(text, encoding="utf-8")


def audit(wheel: Path, tag: str) -> None:
    """Raises SystemExit unless auditwheel finds that the tag promises no more than is true."""
    told = " ".join(run("auditwheel", "show", wheel).split())
    if f'following platform tag: "{tag}"' not in told:
        raise SystemExit(f"auditwheel does not find {wheel.name} to be {tag}: {told}")
    say(f"auditwheel: consistent with {tag}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machine", choices=tuple(COMPILERS), default="x86_64", help="[x86_64]")
    parser.add_argument("--isa", nargs="+", metavar="ISA", help="[all of the machine]")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="[dist]")
    asked = parser.parse_args()
    offers = isas_of(asked.machine)
    for isa in asked.isa or ():
        if isa not in offers:
            parser.error(f"--isa {isa}: {asked.machine} can have {', '.join(offers)}")
    asked.isa = asked.isa or offers
    return asked


def main() -> int:
    asked = arguments()
    with tempfile.TemporaryDirectory() as folder:
        plain = plain_wheel(Path(folder, "plain"))
        tree = unpacked(plain, Path(folder, "tree"))
        try:
            oldest = add_kernels(tree, asked.machine, asked.isa, COMPILERS[asked.machine])
        except ChipError as error:
            raise SystemExit(str(error)) from error
        tag = f"manylinux_{'_'.join(map(str, oldest))}_{asked.machine}"
        retag(tree, tag)
        out = asked.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        run("wheel", "pack", "--dest-dir", out, tree)
        (sdist,) = plain.parent.glob("*.tar.gz")
        (out / sdist.name).write_bytes(sdist.read_bytes())
    name = "-".join((*plain.name.split("-")[:2], "py3-none", f"{tag}.whl"))
    audit(out / name, tag)
    say(f"{out / name}: {(out / name).stat().st_size:,} bytes; {sdist.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
