"""What a network is given, whatever its family: a batch, weights and caches, as symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anychip.contract.dtype import DType
from anychip.model.config import ModelConfig
from anychip.ops.trace import Ops
from anychip.ops.value import CacheRef, Value, WeightRef


@dataclass(frozen=True)
class BatchRefs:
    """Index arrays of one ragged step: T tokens, B rows, R rows that sample, M pages a row.

    tokens, positions, slots, token_rows: [T]. page_table: [B, M]. cu_q: [B + 1]. kv_lens: [B].
    last: [R], which tokens' hidden states become logits. state_from, state_to: [B], slots of
    recurrent state; None where the network has none.
    """

    tokens: Value
    positions: Value
    slots: Value
    token_rows: Value
    page_table: Value
    cu_q: Value
    kv_lens: Value
    last: Value
    state_from: Value | None = None
    state_to: Value | None = None

    def attention(self) -> dict[str, Value]:
        """The arguments that every attention operator shares."""
        return {
            "page_table": self.page_table,
            "cu_q": self.cu_q,
            "kv_lens": self.kv_lens,
            "positions": self.positions,
            "token_rows": self.token_rows,
        }

    def recurrent(self) -> dict[str, Value]:
        """The arguments that every operator of recurrent state shares."""
        assert self.state_from is not None and self.state_to is not None
        return {
            "state_from": self.state_from,
            "state_to": self.state_to,
            "cu_q": self.cu_q,
            "positions": self.positions,
            "token_rows": self.token_rows,
        }


@dataclass(frozen=True)
class NetworkInputs:
    """Everything that a network reads. dtype: the activations'. weights: as sources name them.

    caches: of the layers that have one, by layer. states: recurrent state by layer and part.
    """

    config: ModelConfig
    dtype: DType
    batch: BatchRefs
    weights: Mapping[str, WeightRef | Value]
    caches: Mapping[int, CacheRef]
    states: Mapping[str, Value] = field(default_factory=dict)

    def optional(self, name: str) -> WeightRef | Value | None:
        """A weight that not every checkpoint has."""
        return self.weights.get(name)


Network = Callable[[Ops, NetworkInputs], Value]
"""Traces one step and returns logits [R, V] in float32."""
