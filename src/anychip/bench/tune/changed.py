"""Which settings two plans differ in, in the words of flags: why runs are not gone on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .plan import Load, Plan, Variable

_SCALING = "--scale-input, --scale-output, --max-input or --max-output"


def changed(then: Plan, now: Plan) -> list[str]:
    """One text a setting, `--flag: that then, this now`."""
    pairs = [
        *_pairs(_flags(then.base), _flags(now.base)),
        ("--model-path", then.model, now.model),
        *_pairs(_varied(then.variables), _varied(now.variables)),
        ("--repeats", then.repeats, now.repeats),
        ("--objective", then.objective, now.objective),
        ("--slo-ttft", _ms(then.slo_ms[0]), _ms(now.slo_ms[0])),
        ("--slo-tpot", _ms(then.slo_ms[1]), _ms(now.slo_ms[1])),
    ]
    found = [_told(*pair) for pair in pairs if pair[1] != pair[2]]
    found += _of_load(then.load, now.load)
    if then.fingerprint_id != now.fingerprint_id:
        found.append("the machine, its chip or their software is another one")
    return found


def _of_load(then: Load, now: Load) -> list[str]:
    found = []
    if then.trace != now.trace:
        found.append(_told("--trace", then.trace, now.trace))
    elif then.digest != now.digest:
        found.append(f"--trace: {now.trace} has other contents now")
    pairs = [
        ("--requests", then.requests, now.requests),
        ("--speed", f"{then.speed:g}", f"{now.speed:g}"),
        (_SCALING, then.scaling, now.scaling),
    ]
    return found + [_told(*pair) for pair in pairs if pair[1] != pair[2]]


def _told(name: str, then: object, now: object) -> str:
    return f"{name}: {then} then, {now} now"


def _pairs(then: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys((*then, *now))
    return [(name, then.get(name, "not given"), now.get(name, "not given")) for name in names]


def _flags(words: Sequence[str]) -> dict[str, str]:
    """flag -> its values with commas; a flag without one was given."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word
            found.setdefault(name, [])
        else:
            found.setdefault(name, []).append(word)
    return {name: ",".join(values) or "given" for name, values in found.items()}


def _varied(variables: Sequence[Variable]) -> dict[str, str]:
    """What is tried of each flag, under the name that `--vary` gives it."""
    return {
        f"--vary {one.flag.removeprefix('--')}": ",".join((one.base, *one.values))
        for one in variables
    }


def _ms(value: float | None) -> str:
    return "not given" if value is None else f"{value:g}"
