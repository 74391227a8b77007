"""What a look finds of a library that is compiled here, for `doctor` and `build`."""

from __future__ import annotations

import re
from pathlib import Path

from anychip.contract.build import Finding, Verdict
from anychip.contract.compile import (
    BuildOrder,
    NoCompiler,
    cached_library,
    find_compiler,
    is_intact,
    left_out,
)

_NO_HEADER = re.compile(r"error: '?([^\s':]+)'?(?:: No such file| file not found)")


def look(order: BuildOrder, *, cache_dir: Path) -> tuple[Finding, ...]:
    """Compiler there, library built, what was left out of it; without building."""
    try:
        compiler = find_compiler(order.chip)
    except NoCompiler as error:
        return (Finding("C++ compiler", Verdict.BAD, error.fact.text, "install g++"),)
    found = [Finding("C++ compiler", Verdict.GOOD, compiler.version)]
    path, step = (
        cached_library(order, cache_dir=cache_dir, compiler=compiler),
        f"anychip build {order.chip}",
    )
    if not is_intact(path):
        text = f"not built yet, or for other sources or another SDK, in {cache_dir}"
        return (*found, Finding("kernels", Verdict.UNKNOWN, text, step))
    found.append(Finding("kernels", Verdict.GOOD, str(path)))
    for name, why in left_out(path).items():
        text = f"{name} is left out, what is in it will be missing: {why}"
        found.append(Finding("kernels", Verdict.UNKNOWN, text, _with(order, name, why)))
    return tuple(found)


def _with(order: BuildOrder, name: str, why: str) -> str:
    """What to do about an optional source that was left out."""
    header = _NO_HEADER.search(why)
    way_out = f"for {header[1] if header else name}: {order.way_out}"
    return f"{way_out if order.way_out else f'mend {name}'}; or go without {name}"
