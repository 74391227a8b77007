"""The oracle of recurrent state, token by token."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anychip.ops.oracle.arrays import Array, Attrs, Inputs, Oracle, Result, wide
from anychip.ops.oracle.primitives import silu


def _rows(inputs: Inputs) -> Iterator[tuple[slice, Array | None, int]]:
    """Of each sequence with tokens: which ones, its state before (None: zeros), where it goes."""
    cu_q = inputs["cu_q"]
    for b, target in enumerate(inputs["state_to"]):
        tokens = slice(int(cu_q[b]), int(cu_q[b + 1]))
        if tokens.start == tokens.stop:
            continue
        fresh = inputs["positions"][tokens.start] == 0
        held = None if fresh else inputs["state"][inputs["state_from"][b]]
        yield tokens, held, int(target)


def _causal_conv1d(inputs: Inputs, attrs: Attrs) -> Result:
    x, weight, bias = inputs["x"], wide(inputs["weight"]), inputs.get("bias")
    state, y = inputs["state"].copy(), np.zeros(x.shape)
    kept, width = state.shape[1], weight.shape[1]
    for tokens, held, target in _rows(inputs):
        before = np.zeros(state.shape[1:], x.dtype) if held is None else held
        first = int(inputs["positions"][tokens.start])
        before = np.where(np.arange(first - kept, first)[:, None] < 0, 0, before).astype(x.dtype)
        line = np.concatenate([before, x[tokens]])
        count = len(line) - kept
        y[tokens] = sum(wide(line[j : j + count]) * weight[:, j] for j in range(width))
        state[target] = line[count:]
    if bias is not None:
        y = y + wide(bias)
    return Result((silu(y) if attrs["activation"] == "silu" else y,), {"state": state})


def _gated_delta_rule(inputs: Inputs, attrs: Attrs) -> Result:
    v, share = wide(inputs["v"]), inputs["v"].shape[1] // inputs["k"].shape[1]
    q, k = (wide(inputs[name]).repeat(share, axis=1) for name in "qk")
    decay, beta = np.exp(wide(inputs["decay"])), wide(inputs["beta"])
    state, y = inputs["state"].copy(), np.zeros(v.shape)
    for tokens, held, target in _rows(inputs):
        memory = np.zeros(state.shape[1:]) if held is None else wide(held)
        for t in range(tokens.start, tokens.stop):
            memory = memory * decay[t, :, None, None]
            error = v[t] - np.einsum("hk,hkv->hv", k[t], memory)
            memory = memory + k[t][:, :, None] * (beta[t][:, None] * error)[:, None, :]
            y[t] = attrs["scale"] * np.einsum("hk,hkv->hv", q[t], memory)
        state[target] = memory.astype(state.dtype)
    return Result((y,), {"state": state})


RECURRENT: dict[str, Oracle] = {
    "causal_conv1d": _causal_conv1d,
    "gated_delta_rule": _gated_delta_rule,
}
