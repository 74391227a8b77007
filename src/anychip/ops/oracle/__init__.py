"""The oracle: every operator of the catalogue in plain numpy, float64 inside, never fast.

Weights arrive dense, [N, K]. A chip is compared with it; no chip and no model computes with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.signature import REQUIRED
from anychip.ops.oracle.arrays import CacheArrays, Inputs, Oracle, Result, latent_arrays
from anychip.ops.oracle.attention import ATTENTION
from anychip.ops.oracle.blocks import BLOCKS
from anychip.ops.oracle.experts import EXPERTS
from anychip.ops.oracle.network import NETWORK
from anychip.ops.oracle.primitives import PRIMITIVES
from anychip.ops.oracle.sampling import SAMPLING

__all__ = ["ORACLE", "CacheArrays", "Result", "evaluate", "filled", "latent_arrays"]

ORACLE: dict[str, Oracle] = {
    **PRIMITIVES,
    **NETWORK,
    **EXPERTS,
    **ATTENTION,
    **BLOCKS,
    **SAMPLING,
}


def filled(op: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with the signature's defaults filled in."""
    defaults = {a.name: a.default for a in CATALOGUE[op].attrs if a.default is not REQUIRED}
    return {**defaults, **attrs}


def evaluate(op: str, inputs: Inputs, attrs: Mapping[str, Any]) -> Result:
    """What the operator gives for these inputs. Raises KeyError for a missing argument."""
    return ORACLE[op](inputs, filled(op, attrs))
