"""Tables of the start-up log as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anychip.contract.formats import PLAIN_FORMATS, is_quantized
from anychip.model.checkpoint import Checkpoint
from anychip.model.sources import Part
from anychip.ops.record import Served
from anychip.run.memory_plan import MemoryPlan
from anychip.run.model_plan import ModelPlan


def operator_table(rows: Sequence[Served], *, why: bool) -> str:
    """Which implementation serves each operator; with `why`, who declined before it."""
    lines = ["operators:", f"  {'operator':<20} {'kind':<9} implementation"]
    for row in rows:
        served_by = "smaller operators" if row.kind == "composed" else row.implementation
        lines.append(f"  {row.op:<20} {row.kind:<9} {served_by}")
        lines += [f"  {'':<20} {'':<9}   {reason}" for reason in row.why] if why else []
    return "\n".join(lines)


def weight_table(checkpoint: Checkpoint, plan: ModelPlan) -> str:
    """Of each format how many tensors and bytes there are, and what they are computed in."""
    counts: dict[tuple[str, str], list[int]] = {}
    for part, format, computed in _computed(checkpoint, plan):
        row = counts.setdefault((format, computed), [0, 0])
        row[0] += 1
        row[1] += checkpoint.nbytes(part)
    width = max(len(format) for format, _ in [("format", ""), *counts])
    lines = ["weights:", f"  {'format':<{width}}  {'tensors':>7}  {'in files':>14}  computed"]
    for (format, computed), (tensors, nbytes) in counts.items():
        size = f"{nbytes / 2**20:>10,.1f} MiB"
        lines.append(f"  {format:<{width}}  {tensors:>7,}  {size}  {computed}")
    return "\n".join(lines)


def _computed(checkpoint: Checkpoint, plan: ModelPlan) -> Iterator[tuple[Part, str, str]]:
    """Parts of matrices, and of constants that are quantized in the file: format and fate."""
    for weight in plan.weights:
        for part in weight.source.parts:
            format, _shape = checkpoint.describe(part)
            kept = "as it is" if format == weight.spec.format else f"in {weight.spec.format}"
            done = "quantized" if is_quantized(weight.converted or "") else "converted"
            into = f"{done} to {weight.converted} at load"
            yield part, format, into if weight.converted else kept
    for source in plan.constants:
        for part in source.parts:
            format, _shape = checkpoint.describe(part)
            if format not in PLAIN_FORMATS:
                yield part, format, f"converted to {plan.constant_dtype(source)} at load"


def memory_table(memory: MemoryPlan, plan: ModelPlan) -> str:
    """Bytes by use, and the longest sequence that fits."""
    lines, used = [f"memory ({memory.info.source}):"], memory.table()
    width = max(12, *map(len, used))
    lines += [f"  {name:<{width}} {n / 2**20:>10,.1f} MiB" for name, n in used.items()]
    tokens = memory.pages * plan.group.page_size
    lines.append(f"  cache: {memory.pages:,} pages of {plan.group.page_size} = {tokens:,} tokens")
    if memory.pages == memory.block_pages:
        largest = memory.info.largest / 2**20
        lines.append(f"  more pages fit into no block: the device's largest is {largest:,.1f} MiB")
    cut = (
        ""
        if memory.longest == plan.context_length
        else f" (the model allows {plan.context_length:,})"
    )
    lines.append(f"  longest sequence: {memory.longest:,} tokens{cut}")
    return "\n".join(lines)
