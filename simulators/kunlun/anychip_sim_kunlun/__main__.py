"""`anychip sim build kunlun`, or `python -m anychip_sim_kunlun build`: makes the simulated SDK."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from anychip_sim_kunlun import faults
from anychip_sim_kunlun.making import RECORD
from anychip_sim_kunlun.order import TreeOrder
from anychip_sim_kunlun.profiles import MOST_DEVICES, PROFILES
from anychip_sim_kunlun.refusal import BuildRefused
from anychip_sim_kunlun.tree import build_tree

HOME = Path.home() / ".cache" / "anychip" / "sim"
LEAST_MIB = 64
"""Under this, a card would not hold the smallest pools."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 done, 1 failed, 2 asked for something impossible, 141: nobody reads."""
    parser = _parser()
    asked = parser.parse_args(sys.argv[1:] if argv is None else list(argv))
    try:
        return _obey(asked)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _obey(asked: argparse.Namespace) -> int:
    try:
        if asked.list_faults:
            _say(faults.listing())
            return 0
        order = _order(asked)
    except BuildRefused as error:
        return _tell(error, 2)
    try:
        return _build(order)
    except BuildRefused as error:
        return _tell(error, 1)


def _parser() -> argparse.ArgumentParser:
    prog = "anychip sim build kunlun"
    parser = argparse.ArgumentParser(prog, allow_abbrev=False, description=__doc__)
    parser.add_argument("command", choices=["build"], help=argparse.SUPPRESS)
    add = parser.add_argument
    add("--prefix", type=Path, default=HOME / "kunlun", help="where the tree goes [%(default)s]")
    add("--profile", choices=list(PROFILES), default="p800", help="kind of card [p800]")
    add("--devices", type=int, default=2, metavar="N", help=f"cards, 1 to {MOST_DEVICES} [2]")
    add("--driver", metavar="V", help="version of the driver, such as 5.0.9.1 [the profile's]")
    add("--runtime", metavar="V", help="version of the runtime, XRE [the profile's]")
    add("--memory-mib", type=int, metavar="M", help="shrink each card to M MiB")
    add("--fault", action="append", default=[], metavar="F", help="a fault to build in; repeatable")
    add("--list-faults", action="store_true", help="list all faults, and those of XPUSIM_FAULTS")
    add("--jobs", type=int, default=2, metavar="N", help="compilers at a time [2]")
    cache = HOME / "kunlun-cache"
    add("--cache-dir", type=Path, default=cache, help="compiled objects, kept [%(default)s]")
    return parser


def _order(asked: argparse.Namespace) -> TreeOrder:
    """What was asked, checked. Raises BuildRefused."""
    profile = PROFILES[asked.profile]
    _within("--devices", asked.devices, 1, MOST_DEVICES)
    _within("--jobs", asked.jobs, 1, 256)
    memory = profile.memory_mib if asked.memory_mib is None else asked.memory_mib
    _within("--memory-mib", memory, LEAST_MIB, profile.memory_mib)
    prefix = asked.prefix.expanduser().absolute()
    if "," in str(prefix):
        raise BuildRefused(f"--prefix {prefix}: no comma, which parts folders in options")
    return TreeOrder(
        prefix=prefix,
        cache=asked.cache_dir.expanduser().absolute(),
        profile=profile,
        devices=asked.devices,
        memory_mib=memory,
        driver=_version("--driver", asked.driver or profile.driver),
        runtime=_version("--runtime", asked.runtime or profile.components["XRE"]),
        faults=tuple(faults.read_fault(text, profile) for text in asked.fault),
        jobs=asked.jobs,
    )


def _within(flag: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BuildRefused(f"{flag} {value}: from {low} to {high}")


def _version(flag: str, text: str) -> str:
    parts = text.split(".")
    if not 2 <= len(parts) <= 4 or not all(p.isascii() and p.isdigit() for p in parts):
        raise BuildRefused(f"{flag} {text}: two to four numbers with dots, such as 5.0.21.21")
    return text


def _build(order: TreeOrder) -> int:
    began = time.monotonic()
    made = build_tree(order, _say)
    took = f"made in {time.monotonic() - began:.0f} s" if made else "unchanged: it was made before"
    _say(f"{order.prefix}: {took}")
    _say(_summary(order))
    return 0


def _summary(order: TreeOrder) -> str:
    profile, prefix = order.profile, order.prefix
    lines = [
        f"  {order.devices} simulated {profile.model}, {order.memory_mib} MiB each,"
        f" driver {order.driver}, runtime {order.runtime}",
        f"  sdk/include sdk/lib runtime/lib bin/xpu_smi; what it was made from: {RECORD}",
    ]
    if order.memory_mib != profile.memory_mib:
        lines.append(f"  SHRUNK CARDS: a {profile.model} has {profile.memory_mib} MiB")
    lines += [f"  FAULT built in: {fault}" for fault in order.faults]
    return "\n".join([*lines, "", *_next_steps(prefix)])


def _next_steps(prefix: Path) -> list[str]:
    there = [
        "for the commands that follow:",
        f"  export KUNLUN_SDK_ROOT={_quoted(prefix / 'sdk')}",
        f"  export KUNLUN_RUNTIME_LIB={_quoted(prefix / 'runtime' / 'lib')}",
    ]
    if prefix == HOME / "kunlun":
        there = ["the chip looks there by itself, unless variables or options name another place"]
    return [
        *there,
        "next:",
        "  anychip build kunlun",
        "  anychip doctor --backend kunlun",
        "  anychip serve --backend kunlun",
    ]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _say(text: str) -> None:
    print(text, flush=True)


def _tell(error: BuildRefused, status: int) -> int:
    print(f"anychip sim: error: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
