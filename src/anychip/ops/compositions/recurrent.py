"""Recipes of recurrent state.

The delta rule goes token by token, in eleven calls each, which read and write one sequence's
state: right for any batch and independent of it, and as slow as so many calls are. A chip that
serves such models brings its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from anychip.contract.dtype import DType
from anychip.ops.compositions.api import Ops, Value
from anychip.ops.compositions.elements import F32, as_float, cast, contiguous, join, number

I32 = DType.INT32


@dataclass(frozen=True)
class _Tokens:
    """Of each token, int32 [T]: place in its sequence's part of the step, position of that part's
    first token, slots that it is read from and written to."""

    local: Value
    start: Value
    source: Value
    target: Value


def _tokens(ops: Ops, batch: dict[str, Value]) -> _Tokens:
    rows, tokens = batch["token_rows"], batch["positions"].shape[0]
    begun = ops.gather_rows(table=batch["cu_q"], index=rows)
    return _Tokens(
        ops.sub(a=ops.arange(length=tokens, dtype=I32.value), b=begun),
        ops.gather_rows(table=batch["positions"], index=begun),
        ops.gather_rows(table=batch["state_from"], index=rows),
        ops.gather_rows(table=batch["state_to"], index=rows),
    )


def causal_conv1d(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    x: Value,
    weight: Value,
    bias: Value | None,
    state: Value,
    state_from: Value,
    state_to: Value,
    cu_q: Value,
    positions: Value,
    token_rows: Value,
    activation: str,
) -> Value:
    """The inputs of each distance, gathered from the step and from the state, weighed and added."""
    tokens, channels = x.shape
    if tokens == 0:
        return _nothing(ops, x)
    batch = {"state_from": state_from, "state_to": state_to, "cu_q": cu_q}
    batch |= {"positions": positions, "token_rows": token_rows}
    kept, own = state.shape[1], contiguous(ops, x)
    told = _tokens(ops, batch)
    columns = ops.copy(x=weight.transpose(1, 0))
    total = ops.mul(a=cast(ops, own, F32), b=columns.narrow(0, kept, 1))
    for back in range(1, kept + 1):
        line = _earlier(ops, own, state, told, back)
        inside = ops.le(a=number(ops, back, I32), b=positions).reshape(tokens, 1)
        line = ops.where(condition=inside, a=cast(ops, line, F32), b=number(ops, 0))
        total = ops.add(a=total, b=ops.mul(a=line, b=columns.narrow(0, kept - back, 1)))
    if bias is not None:
        total = ops.add(a=total, b=bias.reshape(1, channels))
    if activation == "silu":
        total = ops.silu(x=total)
    _keep(ops, own, state, batch)
    return cast(ops, total, x.dtype)


def _earlier(ops: Ops, x: Value, state: Value, told: _Tokens, back: int) -> Value:
    """[T, C]: the input `back` tokens before each, from the step, else from the state."""
    tokens, channels = x.shape
    slots, kept = state.shape[:2]
    here = ops.arange(length=tokens, dtype=I32.value)
    index = ops.maximum(a=ops.sub(a=here, b=number(ops, back, I32)), b=number(ops, 0, I32))
    from_step = ops.gather_rows(table=x, index=index)
    # Inputs of the state are numbered 0 .. kept - 1, so that local - back = -1 is the last one.
    place = ops.add(a=told.local, b=number(ops, kept - back, I32))
    place = ops.minimum(a=place, b=number(ops, kept - 1, I32))
    first = ops.mul(a=told.source, b=number(ops, kept, I32))
    flat = state.reshape(slots * kept, channels)
    from_state = ops.gather_rows(table=flat, index=ops.add(a=first, b=place))
    inside = ops.le(a=number(ops, back, I32), b=told.local).reshape(tokens, 1)
    y: Value = ops.where(condition=inside, a=from_step, b=from_state)
    return y


def _keep(ops: Ops, x: Value, state: Value, batch: dict[str, Value]) -> None:
    """Each sequence's last inputs into its slot, all read before any is written."""
    (tokens, channels), (slots, kept) = x.shape, state.shape[:2]
    rows, flat = batch["state_from"].shape[0], state.reshape(slots * kept, channels)
    first, end = (batch["cu_q"].narrow(0, start, rows).reshape(rows, 1) for start in (0, 1))
    count = ops.sub(a=end, b=first)
    places = ops.arange(length=kept, dtype=I32.value).reshape(1, kept)
    local = ops.add(a=ops.sub(a=count, b=number(ops, kept, I32)), b=places)
    zero, last = number(ops, 0, I32), number(ops, tokens - 1, I32)
    begun = ops.minimum(a=first, b=last)
    index = ops.minimum(a=ops.maximum(a=ops.add(a=first, b=local), b=zero), b=last)
    old = ops.minimum(a=ops.add(a=count, b=places), b=number(ops, kept - 1, I32))
    old = ops.add(a=_first(ops, batch["state_from"], kept), b=old)
    start = ops.gather_rows(table=batch["positions"], index=begun)
    written = ops.le(a=zero, b=ops.add(a=start, b=local)).reshape(rows * kept, 1)
    inside = ops.le(a=zero, b=local).reshape(rows * kept, 1)
    line = ops.where(
        condition=inside,
        a=ops.gather_rows(table=x, index=index.reshape(rows * kept)),
        b=ops.gather_rows(table=flat, index=old.reshape(rows * kept)),
    )
    line = ops.where(condition=written, a=line, b=number(ops, 0, x.dtype))
    target = ops.add(a=_first(ops, batch["state_to"], kept), b=places)
    target = ops.where(condition=ops.lt(a=zero, b=count), a=target, b=number(ops, -1, I32))
    ops.scatter_rows(target=flat, source=line, index=target.reshape(rows * kept))


def _first(ops: Ops, slots: Value, kept: int) -> Value:
    """[B, 1]: where each slot's inputs begin among those of all."""
    y: Value = ops.mul(a=slots.reshape(slots.shape[0], 1), b=number(ops, kept, I32))
    return y


def gated_delta_rule(  # noqa: PLR0913 - the operator's own arguments
    ops: Ops,
    *,
    q: Value,
    k: Value,
    v: Value,
    decay: Value,
    beta: Value,
    state: Value,
    state_from: Value,
    state_to: Value,
    cu_q: Value,
    positions: Value,
    token_rows: Value,
    scale: float,
) -> Value:
    """Token by token: the state is gathered, decayed, corrected, read and scattered."""
    if v.shape[0] == 0:
        return _nothing(ops, v)
    batch = {"state_from": state_from, "state_to": state_to, "cu_q": cu_q}
    told = _tokens(ops, {**batch, "positions": positions, "token_rows": token_rows})
    begins = ops.le(a=told.local, b=number(ops, 0, I32))
    at_zero = ops.le(a=told.start, b=number(ops, 0, I32))
    source = ops.where(condition=begins, a=told.source, b=told.target)
    fresh = ops.mul(a=as_float(ops, begins), b=as_float(ops, at_zero))
    held = ops.lt(a=fresh, b=number(ops, 0.5))
    heads = _Heads.of(ops, (q, k, v), (decay, beta), scale)
    parts = []
    for t in range(v.shape[0]):
        where = (source.narrow(0, t, 1), held.narrow(0, t, 1), told.target.narrow(0, t, 1))
        parts.append(_step(ops, heads.at(t), state, where))
    return cast(ops, join(ops, parts), v.dtype)


@dataclass(frozen=True)
class _Heads:
    """Of all tokens, float32: queries and keys [T, H, K], values [T, H, V], what the state is
    multiplied by and beta [T, H]."""

    q: Value
    k: Value
    v: Value
    keeps: Value
    beta: Value

    @classmethod
    def of(
        cls, ops: Ops, qkv: tuple[Value, Value, Value], gates: tuple[Value, Value], scale: float
    ) -> _Heads:
        q, k, v = (contiguous(ops, cast(ops, part, F32)) for part in qkv)
        tokens, heads, groups = v.shape[0], v.shape[1], k.shape[1]
        q = ops.mul(a=q, b=number(ops, scale))
        wide = (tokens, groups, heads // groups, k.shape[2])
        q, k = (
            ops.copy(x=part.reshape(tokens, groups, 1, k.shape[2]).broadcast_to(*wide)).reshape(
                tokens, heads, k.shape[2]
            )
            for part in (q, k)
        )
        return cls(q, k, v, ops.exp(x=gates[0]), gates[1])

    def at(self, t: int) -> _Heads:
        """One token, heads first: [H, 1, K], [H, 1, V], [H, 1, 1]."""
        heads = self.v.shape[1]
        q, k, v, keeps, beta = (
            part.narrow(0, t, 1).reshape(heads, 1, part.shape[-1] if part.shape[2:] else 1)
            for part in (self.q, self.k, self.v, self.keeps, self.beta)
        )
        return _Heads(q, k, v, keeps, beta)


def _step(ops: Ops, token: _Heads, state: Value, where: tuple[Value, ...]) -> Value:
    """One token's y [1, H, V]. where: the slot that its state is in, whether it is one at all, and
    the slot that it goes to, [1] each."""
    slots, heads, keys, values = state.shape
    source, held, target = where
    flat = state.reshape(slots, heads * keys * values)
    memory = ops.gather_rows(table=flat, index=source).reshape(heads, keys, values)
    memory = ops.where(condition=held.reshape(1, 1, 1), a=memory, b=number(ops, 0))
    memory = ops.mul(a=memory, b=token.keeps)
    error = ops.sub(a=token.v, b=ops.batched_matmul(a=token.k, b=memory))
    column = token.k.reshape(heads, keys, 1)
    memory = ops.add(a=memory, b=ops.mul(a=column, b=ops.mul(a=error, b=token.beta)))
    ops.scatter_rows(target=flat, source=memory.reshape(1, heads * keys * values), index=target)
    y: Value = ops.batched_matmul(a=token.q, b=memory)
    return y.reshape(1, heads, values)


def _nothing(ops: Ops, like: Value) -> Value:
    y: Value = ops.fill(shape=like.shape, value=0.0, dtype=like.dtype.value)
    return y
