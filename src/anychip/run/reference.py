"""A model's logits without a chip: what they are, and what rounding alone makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from anychip.contract.cache import CacheGroup
from anychip.contract.dtype import DType
from anychip.contract.formats import format_bytes
from anychip.contract.weights import WeightSpec
from anychip.hostops import NUMPY_DTYPES
from anychip.hostops.views import Array
from anychip.model.checkpoint import Checkpoint
from anychip.model.config import ModelConfig
from anychip.model.families import FAMILIES
from anychip.model.layers.attention import table_name
from anychip.model.rope import cos_sin_table
from anychip.model.sources import WeightSource
from anychip.ops.oracle import evaluate
from anychip.ops.reference import by_recipe, interpret, undivided
from anychip.run.dense import dense_reader
from anychip.run.model_plan import ModelPlan, state_group, trace_step
from anychip.run.sizes import Sizes
from anychip.run.weight_plan import WeightPlan


def reference_logits(
    checkpoint: Checkpoint,
    config: ModelConfig,
    tokens: Sequence[int],
    *,
    positions: Sequence[int] | None = None,
    context: int | None = None,
) -> Array:
    """Float64 logits [P, V] by the oracle; weights as the file has them, nothing else is rounded.

    config: the checkpoint's, or that with fewer layers: the network cut after them. tokens: one
    sequence from its start. positions: those whose logits are wanted, all by default. context:
    positions that are served, which some rotations depend on; None: those of the sequence. Raises
    ValueError for no tokens, more than the context, or ids beyond the vocabulary.
    """
    prefill = _Prefill.of(tokens, positions, config)
    plan = plan_without_chip(checkpoint.sources, config, DType.FLOAT32, len(tokens))
    return prefill.run(checkpoint, plan, context, exact=True)


def composed_logits(
    checkpoint: Checkpoint,
    config: ModelConfig,
    tokens: Sequence[int],
    dtype: DType,
    *,
    cache_dtype: DType | None = None,
    context: int | None = None,
) -> Array:
    """Float32 logits [T, V] by the recipes over the host's primitives; weights and activations
    are held in `dtype`, the cache in `cache_dtype` (None: the same).

    How far they lie from `reference_logits` is what rounding alone does to this model. The other
    arguments and errors are those of `reference_logits`.
    """
    prefill = _Prefill.of(tokens, None, config)
    plan = plan_without_chip(checkpoint.sources, config, dtype, len(tokens))
    plan = replace(plan, group=replace(plan.group, dtype=cache_dtype or dtype))
    return prefill.run(checkpoint, plan, context, exact=False)


@dataclass(frozen=True)
class _Prefill:
    """One sequence computed whole: index arrays by name, all positions in one page."""

    indices: dict[str, Array]

    @classmethod
    def of(
        cls, tokens: Sequence[int], positions: Sequence[int] | None, config: ModelConfig
    ) -> _Prefill:
        count = len(tokens)
        if not 1 <= count <= config.context_length:
            raise ValueError(f"{count} tokens: 1 to {config.context_length} make a sequence")
        if not all(0 <= token < config.vocab_size for token in tokens):
            raise ValueError(f"a token is outside the vocabulary of {config.vocab_size}")
        arrays: dict[str, Sequence[int]] = {
            "tokens": tokens,
            "positions": range(count),
            "slots": range(count),
            "token_rows": [0] * count,
            "page_table": [0],
            "cu_q": [0, count],
            "kv_lens": [count],
            "last": range(count) if positions is None else positions,
            "state_from": [0],
            "state_to": [0],
        }
        return cls({name: np.array(values, np.int32) for name, values in arrays.items()})

    def run(
        self, checkpoint: Checkpoint, plan: ModelPlan, context: int | None, *, exact: bool
    ) -> Array:
        """Logits of `last`, by the oracle or by the recipes."""
        sizes = Sizes(len(self.indices["tokens"]), 1, len(self.indices["last"]), 1)
        program = trace_step(plan, sizes, 1, undivided, slots=1)
        given = _Given(checkpoint, plan, self.indices, context, exact=exact)
        return interpret(program, given.array, evaluate if exact else by_recipe)["logits"]


class _Given:
    """What the program reads. exact: caches are float64 and weights as they are in the file;
    otherwise both are held in the plan's dtypes. context: positions that are served."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        plan: ModelPlan,
        indices: dict[str, Array],
        context: int | None,
        *,
        exact: bool,
    ) -> None:
        self._exact, self._plan, self._indices = exact, plan, indices
        self._context = context
        self._read = dense_reader(checkpoint)
        self._caches: dict[str, Array] = {}
        self._tables = {table_name(i): rope for i, rope in enumerate(plan.config.ropes)}

    def array(self, kind: str, key: str) -> Array:
        if kind == "index":
            return self._indices[key]
        if kind in ("cache", "state"):
            return self._cache(key) if kind == "cache" else self._state(key)
        if key in self._tables:
            return cos_sin_table(self._tables[key], self._plan.context_length, self._context)
        found = self._read(key)
        if kind == "weight" and not self._exact:
            return found.astype(NUMPY_DTYPES[self._plan.dtype])
        return found

    def _cache(self, key: str) -> Array:
        group = self._plan.group
        shape = (1, group.page_size, group.kv_heads, group.row)
        dtype = np.dtype(np.float64) if self._exact else NUMPY_DTYPES[group.dtype]
        return self._caches.setdefault(key, np.zeros(shape, dtype))

    def _state(self, key: str) -> Array:
        assert self._plan.states is not None
        spec = self._plan.states.tensors(1)[key]
        dtype = np.dtype(np.float64) if self._exact else NUMPY_DTYPES[spec.dtype]
        return self._caches.setdefault(key, np.zeros(spec.shape, dtype))


def plan_without_chip(
    sources: Sequence[WeightSource], config: ModelConfig, dtype: DType, count: int
) -> ModelPlan:
    """A plan that asks no chip: dense weights, one page of `count` positions."""
    latent = config.latent.rank if config.latent else 0
    layers = len(config.cached_layers)
    group = CacheGroup(layers, config.kv_heads, config.head_dim, dtype, count, latent=latent)
    return ModelPlan(
        config=config,
        network=FAMILIES[config.architecture].network,
        dtype=dtype,
        group=group,
        weights=tuple(_dense(s, dtype) for s in sources if s.uses is not None),
        constants=tuple(s for s in sources if s.uses is None),
        context_length=count,
        states=state_group(config, dtype),
    )


def _dense(source: WeightSource, dtype: DType) -> WeightPlan:
    shape = source.shape
    spec = WeightSpec(dtype.value, shape, format_bytes(dtype.value, shape), dense=True)
    return WeightPlan(source, dtype.value, spec)
