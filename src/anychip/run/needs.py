"""Which operators a model's network calls: no chip, no checkpoint, no weights."""

from __future__ import annotations

from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import CallSpec
from anychip.contract.signature import Tier
from anychip.model.config import ModelConfig
from anychip.model.families import FAMILIES
from anychip.ops.decide import Decision
from anychip.ops.reference import undivided
from anychip.run.model_plan import trace_step
from anychip.run.reference import plan_without_chip
from anychip.run.sizes import Sizes

_TOKENS = 2


def needed_operators(config: ModelConfig) -> tuple[str, ...]:
    """Of one greedy step, fused rungs unrolled, in the order of the catalogue."""
    family = FAMILIES[config.architecture]
    sources = family.sources(config, family.hf_names)
    plan = plan_without_chip(sources, config, DType.FLOAT32, _TOKENS)
    program = trace_step(plan, Sizes(_TOKENS, 1, 1, 1), 1, _unrolled)
    called = {node.spec.op for node in program.nodes}
    return tuple(op for op in CATALOGUE if op in called)


def _unrolled(call: CallSpec) -> Decision:
    return Decision(None) if CATALOGUE[call.op].tier is Tier.FUSED else undivided(call)
