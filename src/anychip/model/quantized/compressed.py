"""compressed-tensors: which of its schemes each linear has, from config groups and targets.

Formats pack-quantized (codes of 4 or 8 bits in 32-bit words), int-quantized (int8), float-quantized
(e4m3) and naive-quantized (either). compressed_linear.py reads what is found here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported
from anychip.model.quantized.compressed_linear import (
    PACKED,
    Activation,
    WeightArgs,
    compressed_linear,
)
from anychip.model.quantized.linear import Linear
from anychip.model.quantized.pieces import Pieces, RawTensors, modules
from anychip.model.quantized.settings import ORIGIN, Settings
from anychip.model.quantized.target import Target

_TOLD = frozenset(
    ["quant_method", "quantization_status", "global_compression_ratio", "version", "run_compressed"]
)
_FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
_STRATEGIES = ("tensor", "channel", "group", "block")
_WEIGHT_TOLD = frozenset(
    ["observer", "observer_kwargs", "scale_dtype", "zp_dtype", "actorder", "dynamic"]
)
_LINEAR = "Linear"
"""The class that targets name; every linear is one."""


@dataclass(frozen=True)
class _Group:
    """One of config_groups. targets: names of modules, "re:" and a pattern, or "Linear"."""

    targets: tuple[Target, ...]
    weights: WeightArgs
    activations: Activation | None


def compressed_linears(store: RawTensors, config: Mapping[str, Any]) -> dict[str, Linear]:
    """Every quantized linear of the folder, under the name of its weight."""
    settings = Settings(config, _TOLD)
    settings.choice("format", (*_FORMATS, "mixed-precision"))
    groups = tuple(_groups(settings.mapping("config_groups") or {}))
    ignore = tuple(map(Target, settings.texts("ignore")))
    _refuse_sparsity(settings.mapping("sparsity_config") or {})
    settings.finish()
    found = {}
    for module in _quantized(store):
        pieces = Pieces(store, module)
        group = _group_of(pieces, groups, ignore)
        found[f"{module}.weight"] = compressed_linear(pieces, group.weights, group.activations)
    return found


def _quantized(store: RawTensors) -> list[str]:
    """Linears that are stored in fewer bits, by what their tensors are."""
    small = [m for m in modules(store.tensors, ".weight") if _is_small(store, m)]
    return modules(store.tensors, PACKED) + small


def _is_small(store: RawTensors, module: str) -> bool:
    return store.tensors[f"{module}.weight"].format in ("I8", "F8_E4M3")


def _group_of(pieces: Pieces, groups: tuple[_Group, ...], ignore: tuple[Target, ...]) -> _Group:
    """The group of a quantized linear: by name or pattern first, then by class."""
    module = pieces.module
    ending = PACKED if pieces.has(PACKED) else ".weight"
    if any(target.names(module) for target in ignore):
        raise pieces.error(ending, f"is quantized, but {ORIGIN} lists it under 'ignore'")
    by_name = (g for g in groups if any(t.names(module) for t in g.targets))
    by_class = (g for g in groups if any(t.text == _LINEAR for t in g.targets))
    for group in (*by_name, *by_class):
        return group
    raise pieces.error(ending, f"is quantized, but no group of {ORIGIN} has it as a target")


def _groups(described: Mapping[str, Any]) -> Iterator[_Group]:
    for name, values in described.items():
        origin = f"{ORIGIN}: {name}"
        if not isinstance(values, dict):
            raise CheckpointError(f"{origin} is {values!r:.60}, not an object")
        settings = Settings(values, origin=origin)
        if settings.raw("format") is not None:
            settings.choice("format", _FORMATS)
        weights = settings.mapping("weights")
        if weights is None:
            raise UnsupportedModel(f"{origin} has no 'weights'; only activations are quantized")
        activations = settings.mapping("input_activations")
        targets = tuple(map(Target, settings.texts("targets")))
        settings.finish()
        yield _Group(
            targets,
            _weights(Settings(weights, _WEIGHT_TOLD, f"{origin}: weights")),
            _activation(activations, f"{origin}: input_activations"),
        )


def _weights(settings: Settings) -> WeightArgs:
    bits, kind = settings.integer("num_bits", 8), settings.choice("type", ("int", "float"), "int")
    if (kind, bits) not in (("int", 4), ("int", 8), ("float", 8)):
        raise unsupported(f"{settings.origin}: num_bits", bits, ("4 and 8 (int)", "8 (float)"))
    group = settings.raw("group_size")
    default = "tensor" if group is None else "channel" if group == -1 else "group"
    strategy = settings.choice("strategy", _STRATEGIES, default)
    if strategy == "group" and (type(group) is not int or group < 1):
        raise CheckpointError(f"{settings.origin}: 'group_size' is {group!r:.60}, not a size")
    block = settings.raw("block_structure")
    symmetric = settings.flag("symmetric", True)
    settings.finish()
    return WeightArgs(
        bits=bits,
        is_float=kind == "float",
        symmetric=symmetric,
        strategy=strategy,
        group=group if strategy == "group" else None,
        block=_block(block, settings.origin) if strategy == "block" else None,
    )


def _block(found: Any, origin: str) -> tuple[int, int]:
    sizes = found.split("x") if isinstance(found, str) else found
    try:
        rows, columns = (int(size) for size in sizes)
    except (TypeError, ValueError) as error:
        message = f"{origin}: 'block_structure' is {found!r:.60}, not two sizes"
        raise CheckpointError(message) from error
    if min(rows, columns) < 1:
        raise CheckpointError(f"{origin}: 'block_structure' is {found!r:.60}, not two sizes")
    return rows, columns


def _activation(described: Mapping[str, Any] | None, origin: str) -> Activation | None:
    if described is None:
        return None
    told = frozenset(["observer", "observer_kwargs", "scale_dtype", "zp_dtype", "group_size"])
    settings = Settings(described, told | {"actorder", "block_structure"}, origin)
    bits, kind = settings.integer("num_bits", 8), settings.text("type", "int")
    found = Activation(
        int8=(bits, kind) == (8, "int"),
        dynamic=settings.raw("dynamic") is True,
        symmetric=settings.flag("symmetric", True),
        strategy=settings.text("strategy", "tensor"),
    )
    settings.finish()
    return found


def _refuse_sparsity(described: Mapping[str, Any]) -> None:
    kind = described.get("format", "dense")
    if kind != "dense":
        raise unsupported(f"{ORIGIN}: sparsity_config: format", kind, ("dense",))
