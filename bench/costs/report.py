"""What was measured as Markdown tables, aligned so that they read well on a terminal too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from race.figures import rounded

from costs.results import Measured, Point, Results

EMPTY = "–"
TOP = 8
"""Operators of a step that are told."""

HOW = """\
A step is the scheduler's plan, the runner's run (index arrays, launches, tokens back) and the
scheduler's commit; every time is a median by itself. native: the launches, until the chip is done.
Python: the rest of the step. Limit: the weights and the cache read once at the measured rate of
reads, or the FLOPs at the measured rate of products, whichever takes longer; the share is
limit / step. Weights in w8a8 meet rows of int8, whose products are taken to go at twice that rate,
which is of floats; other quantized weights that are multiplied in whole numbers may go beyond it.
positions: attended to by a sequence, on average; it grows by one a step."""


def report(results: Results) -> str:
    """The whole of steps.md."""
    parts = ["# What a step costs", _about(results), HOW, *map(_model, results.models)]
    if len(results.models) > 1:
        parts.append(_together(results.models))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown with columns of equal width, numbers to the right; empty without rows."""
    body = [list(row) for row in rows]
    if not body:
        return ""
    widths = [max(3, *(len(row[i]) for row in [list(head), *body])) for i in range(len(head))]
    left = [any(not _is_number(row[i]) for row in body) for i in range(len(head))]
    columns = zip(widths, left, strict=True)
    rule = ["-" * (width - 1) + ("-" if at_left else ":") for width, at_left in columns]
    lines = [_line(head, widths, left), _line(rule, widths, left)]
    return "\n".join(lines + [_line(row, widths, left) for row in body])


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    placed = (
        cell.ljust(width) if at_left else cell.rjust(width)
        for cell, width, at_left in zip(cells, widths, left, strict=True)
    )
    return f"| {' | '.join(placed)} |"


def _is_number(cell: str) -> bool:
    return cell == EMPTY or cell.strip("-+,.%e0123456789") == ""


def _about(results: Results) -> str:
    lines = [f"{results.began}; backend {results.asked.get('backend')}."]
    if results.rates is None:
        return "\n".join([*lines, "No limits: the chip has memory of its own."])
    facts, rates = results.rates.facts, results.rates
    load = float(str(facts["load_before"]))
    lines.append(
        f"{facts['cores']} cores of {facts['processor']}, {facts['memory_gib']} GiB; "
        f"{facts['system']}; Python {facts['python']}; load before {load:.2f}."
    )
    lines.append(f"Products in {rates.dtype}: {rounded(rates.product / 1e9)} GFLOP/s.\n")
    reads = facts["read_gb_s"]
    if isinstance(reads, dict):
        rows = ([f"{int(n) / 1e6:,.1f}", f"{reads[n]:.1f}"] for n in sorted(reads, key=int))
        lines.append(table(["bytes read, MB", "GB/s"], rows))
    return "\n".join(lines)


def _model(model: Measured) -> str:
    work = model.work
    lead = (
        f"{work.weight_bytes / 1e6:,.1f} MB of weights and {work.cache_bytes:,} bytes of 16-bit "
        f"cache a position; computed in {model.dtype}, cache in {model.cache_dtype}."
    )
    parts = [f"## {model.name}", lead, decode_table(model), prefill_table(model)]
    parts += [operator_table(point) for point in told(model)]
    parts += [f"* not measured: {why}" for why in model.skipped]
    return "\n\n".join(part for part in parts if part)


PARTS = ["step ms", "plan µs", "run ms", "commit µs", "native ms", "Python µs", "Python %"]
LIMIT = ["limit ms", "bound by", "of the limit %"]


def decode_table(model: Measured) -> str:
    """A line for each batch and context."""
    head = ["batch", "context", "positions", *PARTS, "tokens/s", *LIMIT]
    rows = ([str(p.cost.batch), *_sizes(p), *_parts(p), *_limit(p)] for p in model.decodes())
    found = table(head, rows)
    return found and f"### Decode\n\n{found}"


def prefill_table(model: Measured) -> str:
    """A line for each length of prompt."""
    head = ["tokens", *PARTS, "tokens/s", *LIMIT]
    rows = ([f"{p.cost.context}", *_parts(p), *_limit(p)] for p in model.prefills())
    found = table(head, rows)
    return found and f"### Prefill of one prompt in one step\n\n{found}"


def _sizes(point: Point) -> list[str]:
    return [f"{point.cost.context}", f"{point.cost.positions / point.cost.batch:.0f}"]


def _parts(point: Point) -> list[str]:
    cost = point.cost
    tokens = cost.batch if cost.kind == "decode" else cost.context
    return [
        f"{cost.step * 1e3:.3f}",
        f"{cost.plan * 1e6:.0f}",
        f"{cost.run * 1e3:.3f}",
        f"{cost.commit * 1e6:.0f}",
        f"{cost.native * 1e3:.3f}",
        f"{cost.python * 1e6:.0f}",
        f"{cost.python_share * 100:.1f}",
        f"{tokens / cost.step:,.0f}",
    ]


def _limit(point: Point) -> list[str]:
    limit, reached = point.limit, point.reached
    if limit is None or reached is None:
        return [EMPTY, EMPTY, EMPTY]
    return [f"{limit.seconds * 1e3:.3f}", limit.bound_by, f"{reached * 100:.0f}"]


def told(model: Measured) -> list[Point]:
    """Steps whose operators are told: the smallest and the largest decode, the longest prefill."""
    decodes, prefills = model.decodes(), model.prefills()
    found = [*decodes[:1], *(decodes[-1:] if len(decodes) > 1 else []), *prefills[-1:]]
    return [point for point in found if point.cost.operators]


def operator_table(point: Point) -> str:
    """The dearest implementations of a step, each call timed alone."""
    cost = point.cost
    whole = sum(operator.seconds for operator in cost.operators)
    what = f"decode, batch {cost.batch}, context {cost.context}"
    if cost.kind == "prefill":
        what = f"prefill of {cost.context} tokens"
    rows = (
        [o.id, str(o.calls), f"{o.seconds * 1e6:,.0f}", f"{o.seconds / whole * 100:.1f}"]
        for o in cost.operators[:TOP]
    )
    return f"### Operators: {what}\n\n{table(['implementation', 'calls', 'µs', '%'], rows)}"


def _together(models: Sequence[Measured]) -> str:
    """The models side by side, at each size that was measured of any."""
    keys = list(dict.fromkeys(_key(p) for m in models for p in [*m.decodes(), *m.prefills()]))
    found = {model.name: {_key(point): point for point in model.points} for model in models}
    rows = ([*key, *(_cell(found[model.name].get(key)) for model in models)] for key in keys)
    head = ["step", "batch", "context", *(model.name for model in models)]
    return f"## The models side by side: ms a step (of the limit)\n\n{table(head, rows)}"


def _key(point: Point) -> tuple[str, str, str]:
    return point.cost.kind, str(point.cost.batch), str(point.cost.context)


def _cell(point: Point | None) -> str:
    if point is None:
        return EMPTY
    share = "" if point.reached is None else f" ({point.reached:.0%})"
    return f"{point.cost.step * 1e3:.3f}{share}"
