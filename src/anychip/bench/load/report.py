"""A replay as Markdown, and as files: replay.json, replay.md, answers.jsonl, replay.png."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .bootstrap import Distribution, Estimate
from .figures import Figures
from .replay import Replay, as_json

Row = tuple[str, str, str, str, str]
HEAD: Row = ("ms", "mean", "p50", "p90", "p99")


def latency_rows(figures: Figures) -> list[Row]:
    """A row a latency; a dash where there is none."""
    named = (
        ("TTFT", figures.ttft),
        ("TPOT", figures.tpot),
        ("ITL", figures.itl),
        ("end to end", figures.total),
        ("lateness of sending", figures.lateness),
    )
    return [(name, *_cells(found)) for name, found in named]


def _cells(found: Distribution | None) -> tuple[str, str, str, str]:
    if found is None:
        return ("-",) * 4
    return (
        interval(found.mean, 1000),
        interval(found.p50, 1000),
        interval(found.p90, 1000),
        interval(found.p99, 1000),
    )


def interval(found: Estimate | None, factor: float = 1.0) -> str:
    """A figure and its interval."""
    if found is None:
        return "-"
    value, low, high = (rounded(factor * one) for one in (found.value, found.low, found.high))
    return value if low == high else f"{value} ({low} to {high})"


def rounded(value: float) -> str:
    """Three digits that count; whole numbers from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def lines(found: Replay) -> list[str]:
    """What is told beside the latencies, a line each."""
    figures = found.figures
    told = [
        f"{found.file} ({found.kind}) at {found.url}, model {found.served.model}",
        _loop(found),
        *found.notes,
        f"requests: {figures.requests} sent, {figures.succeeded} answered, {figures.short} of them"
        f" with fewer tokens than asked for, at most {figures.most_at_once} at once",
        f"tokens: {figures.prompt_tokens:,} of prompts, {figures.output_tokens:,} of answers"
        + ("" if figures.counted else " (pieces: the server does not count)"),
        f"rates: {interval(figures.request_rate)} requests/s, {interval(figures.output_rate)}"
        f" output tokens/s, {interval(figures.token_rate)} tokens/s in all",
        _hits(found),
    ]
    if figures.goodput is not None:
        told.append(_goodput(figures))
    if found.as_recorded is not None:
        told.append(f"exact: {found.as_recorded} of {figures.requests} answers are as recorded")
    told += [
        f"failed: {n} x {k}, as {figures.error_examples[k]}" for k, n in figures.errors.items()
    ]
    hint = _hint(" ".join(figures.error_examples.values()))
    return [*told, f"next: {hint}"] if hint else told


def _hint(failures: str) -> str | None:
    """The flag that helps where a server refused what others take; None where none is known."""
    text = failures.lower()
    if "ignore_eos" in text:
        return "it knows no ignore_eos: --free-length lets the model end its answers"
    if "vocab" in text or "invalid tokens" in text:
        return "ids that it does not know: --vocab N, the size of its vocabulary, or --prompts text"
    if "prompt" in text and "string" in text:
        return "it takes no token ids: --prompts text"
    if "context" in text or "maximum" in text or "max_model_len" in text:
        return "longer than it serves: scale or cut, --scale-input, --max-input, --max-output"
    return None


def _loop(found: Replay) -> str:
    figures = found.figures
    if figures.loop == "closed":
        text = (
            f"CLOSED LOOP of {figures.concurrency} callers: the server set the pace, not the trace"
        )
    else:
        text = f"open loop: {rounded(found.seconds)} s of arrivals at speed {figures.speed:g}"
    ended = f", INTERRUPTED with {figures.unanswered} under way" if figures.interrupted else ""
    return f"{text}; it took {rounded(figures.seconds)} s{ended}"


def _hits(found: Replay) -> str:
    best, rate = found.best_hit_rate, found.figures.hit_rate
    told = "not told" if rate is None else f"{rate.value:.1%}"
    if best is None:
        return f"hit rate: {told}"
    size = found.page_size
    warm = ", so the cache was warm" if rate is not None and rate.value > best + 0.01 else ""
    return (
        f"hit rate: {told}; from an empty cache with room for all in pages of {size} tokens it"
        f" would be {best:.1%} at best{warm}"
    )


def _goodput(figures: Figures) -> str:
    good = figures.goodput
    assert good is not None
    limits = [
        f"{name} <= {1000 * value:g} ms"
        for name, value in (("TTFT", good.slo.ttft_s), ("TPOT", good.slo.tpot_s))
        if value is not None
    ]
    share = good.share
    return (
        f"goodput: {rounded(good.per_second)} requests/s, {share.value:.1%} ({share.low:.1%} to"
        f" {share.high:.1%}) of all keep {' and '.join(limits)}"
    )


def markdown(found: Replay) -> str:
    """The report as a page."""
    rows = [HEAD, ("---",) * 5, *latency_rows(found.figures)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    told = "\n".join(f"* {line}" for line in lines(found))
    note = "Intervals: 95 %, by bootstrap over requests; of rates over 20 slices of the run's time."
    return f"# Replay\n\n{told}\n\n{table}\n\n{note}\n"


def write(found: Replay, folder: Path) -> list[Path]:
    """Write all but the plot. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    places = [folder / name for name in ("replay.json", "replay.md", "answers.jsonl")]
    text = msgspec.json.format(msgspec.json.encode(as_json(found)), indent=2)
    places[0].write_bytes(text + b"\n")
    places[1].write_text(markdown(found), encoding="utf-8")
    answers = (msgspec.structs.replace(answer, text="") for answer in found.run.answers)
    places[2].write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in answers))
    return places
