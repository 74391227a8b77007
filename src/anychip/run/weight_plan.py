"""What becomes of each weight at load, known from headers alone: as it is, converted, quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.contract.formats import PLAIN_FORMATS, block_elements
from anychip.contract.registration import Chip
from anychip.contract.tensor import Shape
from anychip.contract.weights import WeightSpec, WeightUse
from anychip.model.checkpoint import Checkpoint
from anychip.model.sources import WeightSource

EXPERT_OPERATORS = ("grouped_linear", "expert_mlp")
"""Those that multiply by weights whose use is EXPERTS."""

AT_LOAD: Mapping[str, str] = {
    "w8a8_int8": "w8a8",
    **{name: name for name in ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")},
}
"""What `--quantization` can make -> the contract's format. Formats whose good scales take a search
(the K-quants) or measured activations (GPTQ, AWQ) are made by those who have them."""

MULTIPLIED = frozenset({WeightUse.LINEAR, WeightUse.EXPERTS})
"""Uses of what is quantized at load. An output, and what scores experts or gates a state, has
LM_HEAD: its results are float32, and few numbers decide. An embedding is looked up, not
multiplied; one that is the output's table too stays for both reasons."""


class ModelPlanError(ValueError):
    """The model cannot be computed on this chip as asked; the message names what to change."""


@dataclass(frozen=True)
class WeightPlan:
    """One weight: where it comes from, the format that it is converted or quantized to first (None:
    it stays as it is), its spec."""

    source: WeightSource
    converted: str | None
    spec: WeightSpec


def quantized_to(checkpoint: Checkpoint, chip: Chip, asked: str | None) -> str | None:
    """The format that linears get at load; None where they keep theirs.

    asked: a name of `AT_LOAD`, or how a quantized model was made, which is only compared. Raises
    ModelPlanError where the chip or the model cannot have it.
    """
    if asked is None or asked == checkpoint.quantized_by:
        return None
    found = {
        format for s in checkpoint.sources if is_multiplied(s) for format in _of(checkpoint, s)
    }
    quantized = sorted(found - set(PLAIN_FORMATS))
    if quantized and AT_LOAD.get(asked) == quantized[0] and len(quantized) == 1:
        return None
    method = checkpoint.quantized_by
    if quantized:
        how = f"by {method}, in " if method and method != "gguf" else "in "
        raise ModelPlanError(
            f"--quantization {asked}: the linears of {checkpoint.path} are quantized already, "
            f"{how}{', '.join(quantized)}; leave the flag out, or name the model in bfloat16"
        )
    if asked not in AT_LOAD:
        raise ModelPlanError(
            f"--quantization {asked}: the linears of {checkpoint.path} are not quantized, and at "
            f"load they can become {', '.join(AT_LOAD)} alone; choose one of them, or leave the "
            "flag out"
        )
    takes = chip.capabilities().weight_formats
    if AT_LOAD[asked] not in takes:
        can = [name for name, format in AT_LOAD.items() if format in takes]
        raise ModelPlanError(
            f"--quantization {asked}: chip '{chip.name}' multiplies by weights in "
            f"{', '.join(takes)}; {_way_out(can)}"
        )
    return AT_LOAD[asked]


def _way_out(can: list[str]) -> str:
    return f"choose {', '.join(can)}, or leave the flag out" if can else "leave the flag out"


def plan_weight(
    checkpoint: Checkpoint, chip: Chip, source: WeightSource, dtype: DType, target: str | None
) -> WeightPlan:
    """dtype: of activations, which what the chip does not take becomes. target: as `quantized_to`
    has it. Raises ModelPlanError where this weight cannot have that."""
    formats, shapes = zip(*map(checkpoint.describe, source.parts), strict=True)
    uses = source.uses or frozenset()
    if target is not None and is_multiplied(source) and set(formats) <= set(PLAIN_FORMATS):
        return _quantized(chip, source, target, shapes)
    takes = chip.capabilities().weight_formats
    converted = None
    if not set(formats) <= set(takes) or chip.weights.declines(formats, shapes, uses) is not None:
        converted = dtype.value
        formats = (converted,) * len(formats)
    spec = chip.weights.plan(formats, shapes, uses)
    if converted is None and _unusable(chip, spec, uses):
        converted = dtype.value
        spec = chip.weights.plan((converted,) * len(formats), shapes, uses)
    return WeightPlan(source, converted, spec)


def _quantized(
    chip: Chip, source: WeightSource, target: str, shapes: tuple[Shape, ...]
) -> WeightPlan:
    uses, formats = source.uses or frozenset(), (target,) * len(shapes)
    elements, columns = block_elements(target), shapes[0][-1]
    if columns % elements:
        why = f"its rows of {columns} elements are no whole blocks of {elements}"
        raise _not_this(source, target, f"{why}; w8a8_int8 has none")
    declined = chip.weights.declines(formats, shapes, uses)
    if declined is not None:
        raise _not_this(source, target, f"chip '{chip.name}' declines it: {declined}")
    spec = chip.weights.plan(formats, shapes, uses)
    if _unusable(chip, spec, uses):
        why = f"chip '{chip.name}' has no operator for experts in that format"
        raise _not_this(source, target, why)
    return WeightPlan(source, target, spec)


def _not_this(source: WeightSource, target: str, why: str) -> ModelPlanError:
    asked = next(name for name, format in AT_LOAD.items() if format == target)
    text = f"--quantization {asked}: weight '{source.name}': {why}; choose another format"
    return ModelPlanError(f"{text}, or leave the flag out")


def is_multiplied(source: WeightSource) -> bool:
    """Whether it is quantized at load where that is asked for."""
    return bool(source.uses) and (source.uses or frozenset()) <= MULTIPLIED


def _of(checkpoint: Checkpoint, source: WeightSource) -> list[str]:
    """Formats of a weight's parts."""
    return [checkpoint.describe(part)[0] for part in source.parts]


def _unusable(chip: Chip, spec: WeightSpec, uses: frozenset[WeightUse]) -> bool:
    """Experts in a layout of the chip's own that none of its operators takes: recipes need rows."""
    if WeightUse.EXPERTS not in uses or spec.dense:
        return False
    served = (i for op in EXPERT_OPERATORS for i in chip.operators.of(op))
    return not any(spec.format in row.types.get("W", ()) for i in served for row in i.dtypes)
