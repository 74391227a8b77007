"""Rotary settings of config.json: of transformers 5 (rope_parameters) and before (rope_scaling)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from anychip.model.config import MOST_HEAD, MOST_POSITIONS
from anychip.model.errors import CheckpointError, UnsupportedModel, unsupported
from anychip.model.fields import Fields
from anychip.model.rope_config import ROPE_KINDS, RopeConfig

_ORIGIN = "config.json rope settings"
_ORIGINAL = "original_max_position_embeddings"


def hf_rope(
    read: Fields,
    head_dim: int,
    *,
    layer_type: str | None = None,
    interleaved: bool = False,
    share: float = 1.0,
) -> RopeConfig:
    """The rotation of a model, or of its layers of one type where they differ.

    head_dim: elements of a head. share: of them that are rotated where it is not said.
    Raises CheckpointError, UnsupportedModel for a kind that is not known.
    """
    scaling = _scaling(read.settings, layer_type)
    settings = read.settings
    outer = {key: settings.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    # Where Phi-3 and its like give it outside, that one counts.
    inner = {k: settings[k] for k in (_ORIGINAL,) if settings.get(k) is not None}
    found = Fields({**outer, **scaling, **inner}, _ORIGIN)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    # Phi-3 was published with "su" before longrope had its name.
    kind = {"su": "longrope", "mrope": "default"}.get(kind, kind) if isinstance(kind, str) else kind
    if kind not in ROPE_KINDS:
        raise unsupported("rope scaling", kind, ROPE_KINDS)
    rotary_dim = int(_bounded(head_dim) * _share(found, share))
    theta = found.number("rope_theta", 10000.0)
    context = read.integer("max_position_embeddings")
    if not 0 < context <= MOST_POSITIONS:
        raise CheckpointError(
            f"config.json: 'max_position_embeddings' is {context}; 1 to {MOST_POSITIONS} are "
            "possible"
        )
    more = _KINDS[kind](found, context)
    return RopeConfig(theta, rotary_dim, kind, interleaved=interleaved, **more)


def _scaling(settings: Mapping[str, Any], layer_type: str | None) -> Mapping[str, Any]:
    found = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if not isinstance(found, dict):
        raise UnsupportedModel(f"rope settings are {found!r:.60}, not an object")
    if layer_type is not None and isinstance(found.get(layer_type), dict):
        return dict(found[layer_type])
    if any(isinstance(v, dict) for v in found.values()):
        raise UnsupportedModel("rope settings that differ by layer are not supported here")
    return found


def _bounded(head_dim: int) -> int:
    """A head's elements, before they are multiplied by a float."""
    if head_dim > MOST_HEAD:
        raise CheckpointError(
            f"config.json: a head has {head_dim} elements; at most {MOST_HEAD} are possible"
        )
    return head_dim


def _share(read: Fields, share: float) -> float:
    """Of a head's elements, those that are rotated."""
    found = read.number("partial_rotary_factor", share)
    if not 0 < found <= 1:
        raise CheckpointError(
            f"{_ORIGIN}: 'partial_rotary_factor' is {found}; above 0 and up to 1 are possible"
        )
    return found


def _original(read: Fields, context: int) -> int:
    """Positions that the model was made for before its rotation was stretched: a divisor."""
    original = read.integer(_ORIGINAL, context)
    if not 1 < original <= MOST_POSITIONS:
        raise CheckpointError(
            f"{_ORIGIN}: '{_ORIGINAL}' is {original}; 2 to {MOST_POSITIONS} are possible"
        )
    return original


def _default(read: Fields, context: int) -> dict[str, Any]:
    return {}


def _factor(read: Fields, context: int) -> dict[str, Any]:
    return {"factor": read.number("factor")}


def _llama3(read: Fields, context: int) -> dict[str, Any]:
    return {
        "factor": read.number("factor"),
        "low_freq_factor": read.number("low_freq_factor"),
        "high_freq_factor": read.number("high_freq_factor"),
        "original_context": _original(read, context),
    }


def _yarn(read: Fields, context: int) -> dict[str, Any]:
    original = _original(read, context)
    factor = read.number("factor", context / original)
    return {
        "factor": factor,
        "original_context": original,
        "beta_fast": read.number("beta_fast", 32.0),
        "beta_slow": read.number("beta_slow", 1.0),
        "truncate": read.flag("truncate", True),
        "magnitude": _yarn_magnitude(read, factor),
    }


def _yarn_magnitude(read: Fields, factor: float) -> float:
    """What cosines and sines are multiplied by; DeepSeek gives two mscales, and their ratio."""
    if read.has("attention_factor"):
        return read.number("attention_factor")
    if read.has("mscale") and read.has("mscale_all_dim"):
        above, below = read.number("mscale"), read.number("mscale_all_dim")
        if above and below:
            return yarn_mscale(factor, above) / _divisor(yarn_mscale(factor, below))
    return yarn_mscale(factor)


def _divisor(magnitude: float) -> float:
    if magnitude <= 0:
        raise CheckpointError(
            f"{_ORIGIN}: 'mscale_all_dim' makes a magnitude of {magnitude}; above 0 is needed"
        )
    return magnitude


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """0.1 mscale ln(factor) + 1: Peng et al. 2023, section 3.4."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(read: Fields, context: int) -> dict[str, Any]:
    """One divisor a frequency; the magnitude as the paper says where the file does not."""
    original = _original(read, context)
    factor = read.number("factor", context / original)
    magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return {
        "factor": factor,
        "original_context": original,
        "magnitude": read.number("attention_factor", magnitude),
        "short": read.numbers("short_factor"),
        "long": read.numbers("long_factor"),
    }


_KINDS: dict[str, Callable[[Fields, int], dict[str, Any]]] = {
    "default": _default,
    "linear": _factor,
    "dynamic": _factor,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
