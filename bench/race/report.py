"""A race's results as Markdown: figures, ratios and who wins, targets, limits, failures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from race.figures import FIGURES, PEAK, START, Results, Spread, rises, rounded
from race.roofline import shares
from race.targets import OURS, START_SECONDS, Verdict, verdicts
from race.workloads import TITLES

EMPTY = "–"


def read_results(path: Path) -> Results:
    """The lines of a results.jsonl."""
    with path.open(encoding="utf-8") as file:
        return Results(json.loads(line) for line in file)


def report(results: Results) -> str:
    """The whole report."""
    parts = [
        ("", _about(results)),
        ("Figures", _figures(results)),
        ("W5: output tokens a second by streams at once", _streams(results)),
        ("Each engine of ours against each peer", _ratios(results)),
        ("Targets", _targets(results)),
        ("Start and memory", _budgets(results)),
        ("Share of the machine's limits", _limits(results)),
        ("Prefixes found in the cache (W3)", _hits(results)),
        ("Not run, or failed", _failures(results)),
        ("How each server was started", _commands(results)),
    ]
    shown = [f"## {title}\n\n{text}" if title else text for title, text in parts if text]
    return "\n\n".join(["# Against the peers", *shown]) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; empty where it has no rows."""
    body, names = [list(row) for row in rows], list(head)
    lines = [names, ["---"] * len(names), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if body else ""


def _cell(spread: Spread | None) -> str:
    return EMPTY if spread is None else str(spread)


def _about(results: Results) -> str:
    lines = [f"* {name}: {what}" for name, what in TITLES.items()]
    for race in results.kind("race")[:1]:
        lines.insert(0, f"{race['began']}; repeats: {race['repeats']}, the engines in turn.")
        if race["shrink"] != 1:
            lines.insert(0, f"**Shrunk {race['shrink']} times to try the bench: not the race.**")
    for facts in results.kind("machine")[:1]:
        lines.insert(
            1,
            f"{facts['cores']} cores of {facts['processor']} ({_words(facts['features'])}), "
            f"{facts['memory_gib']} GiB; {facts['system']}; Python {facts['python']}.\n",
        )
    if busy := results.kind("busy"):
        most = max(float(str(line["share"])) for line in busy)
        lines.append(
            f"\n**Others used up to {most:.0%} of the cores before a run; told {len(busy)} times.**"
        )
    lines.append("\nMedian (least to most) of the repeats.")
    return "\n".join(lines)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) and value else "no features known"


def _figures(results: Results) -> str:
    engines = results.engines
    rows = (
        [figure.title, *(_cell(results.spread(e, figure.work, figure.key)) for e in engines)]
        for figure in FIGURES
    )
    return table(["figure", *engines], rows)


def _streams(results: Results) -> str:
    found = {engine: results.streams(engine) for engine in results.engines}
    counts = sorted({count for spreads in found.values() for count in spreads})
    rows = []
    for engine, spreads in found.items():
        medians = [spread.median for spread in spreads.values()]
        word = ("yes" if rises(medians) else "NO") if len(medians) > 1 else EMPTY
        rows.append([engine, *(_cell(spreads.get(count)) for count in counts), word])
    return table(["engine", *map(str, counts), "rises"], rows) if counts else ""


def _families(results: Results) -> dict[str, str]:
    return {str(line["engine"]): str(line["family"]) for line in results.kind("server")}


def _ratios(results: Results) -> str:
    families = _families(results)
    peers = [name for name, family in families.items() if family != OURS]
    if not peers:
        return ""
    lead = (
        "How many times as good ours is, repeat by repeat; above 1 we win, below 1 the peer does."
    )
    shown = (_against(results, name, peers) for name, family in families.items() if family == OURS)
    return "\n\n".join([lead, *shown])


def _against(results: Results, ours: str, peers: list[str]) -> str:
    rows = ([f.title, *(_won(results.gain(f, ours, peer)) for peer in peers)] for f in FIGURES)
    return table([f"{ours} against", *peers], rows)


def _won(gain: Spread | None) -> str:
    if gain is None:
        return EMPTY
    return f"**{gain.median:.2f}** ours" if gain.median > 1 else f"{gain.median:.2f} peer"


def _targets(results: Results) -> str:
    rows = (_target_row(verdict) for verdict in verdicts(results))
    return table(["figure", "width", "ours", "peer", "wanted", "found", ""], rows)


def _target_row(verdict: Verdict) -> list[str]:
    target = verdict.target
    widths = "best of each" if target.ours is None else target.ours
    if target.ours != target.theirs:
        widths = f"{target.ours} against {target.theirs}"
    wanted = f"{'aim ' if target.aim else ''}{target.least:g} x"
    found = EMPTY if verdict.gain is None else f"{verdict.gain.median:.2f} x"
    names = [verdict.ours or EMPTY, verdict.theirs or target.peer]
    return [target.figure.title, widths, *names, wanted, found, verdict.says]


def _budgets(results: Results) -> str:
    rows = list(_budget_rows(results))
    return table(["engine", "figure", "wanted", "found", ""], rows)


def _budget_rows(results: Results) -> Iterator[list[str]]:
    models = {str(line["engine"]): line for line in results.kind("model")}
    for engine, family in _families(results).items():
        if family != OURS:
            continue
        start = results.spread(engine, START.work, START.key)
        if start:
            yield _budget(engine, START.title, START_SECONDS, start)
        peak = results.spread(engine, PEAK.work, PEAK.key)
        if peak and engine in models:
            held = float(str(models[engine]["held_mib"]))
            yield _budget(engine, "peak memory (weights, cache, and 200), MiB", held, peak)


def _budget(engine: str, title: str, most: float, found: Spread) -> list[str]:
    word = "reached" if found.median <= most else "MISSED"
    return [engine, title, f"at most {rounded(most)}", str(found), word]


def _limits(results: Results) -> str:
    rows = (
        [
            share.engine,
            share.what,
            f"{rounded(share.reached)} {share.unit}",
            f"{rounded(share.limit)} {share.unit}",
            f"{share.reached / share.limit:.0%}",
        ]
        for share in shares(results)
    )
    told = table(["engine", "phase", "reached", "measured limit", "share"], rows)
    lead = (
        "W1 decode: bytes of the weights and of the cached positions (192 on average) that a token "
        "reads, against an array of that many bytes read by numpy on all cores. W4 prefill: FLOP "
        "of the layers, the head and causal attention, against a square product in bfloat16 by "
        "torch. Both limits are measured at the start of each repeat, nothing else running."
    )
    return f"{lead}\n\n{told}" if told else ""


def _hits(results: Results) -> str:
    found = [(e, results.spread(e, "W3", "hit_rate")) for e in results.engines]
    rows = [
        [engine, f"{rate.median:.1%}" if rate else "not told"]
        for engine, rate in found
        if results.spread(engine, "W3", "wall_s")
    ]
    return table(["engine", "prompt tokens found in the cache"], rows)


def _failures(results: Results) -> str:
    lines = [f"* {line['engine']}: {line['why']}" for line in results.kind("skipped")]
    for line in results.kind("error"):
        lines.append(f"* {line['engine']}, repeat {line['repeat']}: {line['why']}")
    uncounted = {
        str(line["engine"]) for line in results.kind("batch") if line.get("counted") is False
    }
    lines += [
        f"* {engine} does not tell how many tokens it made; its answers ended for their length, "
        "so the number asked for is taken"
        for engine in sorted(uncounted)
    ]
    return "\n".join(lines)


def _commands(results: Results) -> str:
    first: dict[str, Mapping[str, object]] = {}
    for line in results.kind("server"):
        first.setdefault(str(line["engine"]), line)
    lines = []
    for engine, line in first.items():
        lines.append(f"* **{engine}**, {line['version']}: `{line['command']}`")
    return "\n".join(lines)
