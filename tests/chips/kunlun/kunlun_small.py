"""A shim of a few lines in place of the chip's, and SDK trees with one thing changed."""

import shutil
from pathlib import Path
from typing import Any

from anychip.chips.kunlun import build
from anychip.contract.build import Finding, Verdict

CORE = """
#include "xpu/runtime.h"
extern "C" __attribute__((visibility("default"))) int small_runtime() {
    uint32_t major = 0, minor = 0;
    return xpu_get_runtime_version(&major, &minor) ? -1 : static_cast<int>(major);
}
"""
NO_HEADER = '#include "xpu/of_another_version.h"\nint gone() { return 0; }\n'
NO_SYMBOL = """
namespace baidu { namespace xpu { namespace api { int of_another_version(int); } } }
int unlinked() { return baidu::xpu::api::of_another_version(1); }
"""
RAW = "_ZN5baidu3xpu3api18of_another_versionEi"


def small_shim(monkeypatch: Any, folder: Path, **sources: str) -> Path:
    """Kernels of these sources (core.cpp where none is named) and the chip's own tables."""
    kernels = folder / "kernels"
    kernels.mkdir()
    for table in build.KERNELS.glob("*.tsv"):
        shutil.copy(table, kernels)
    for name, text in (sources or {"core": CORE}).items():
        (kernels / f"{name}.cpp").write_text(text)
    monkeypatch.setattr(build, "KERNELS", kernels)
    return kernels


def linked_tree(tree: Path, place: Path) -> Path:
    """The same tree at another place, of links: what is changed there, is changed there alone."""
    for file in sorted(p for p in tree.rglob("*") if not p.is_dir()):
        target = place / file.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(file)
    return place


def replaced(file: Path, content: bytes) -> None:
    """A file of its own in place of a link."""
    file.unlink()
    file.write_bytes(content)


def options(root: Path | None = None, **given: Any) -> dict[str, Any]:
    """As `read_options` gives them, where nothing else is typed."""
    names = ("sdk_root", "runtime_lib", "include_dirs", "library_dirs", "define", "build_dir")
    return dict.fromkeys(names, "") | {"sdk_root": str(root or "")} | given


def bad(found: tuple[Finding, ...]) -> dict[str, Finding]:
    return {f.name: f for f in found if f.verdict is Verdict.BAD}
