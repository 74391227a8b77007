"""Recurrent state on the host: the next token of every sequence at once, then the one behind it.

A token's result is the same whatever chunk or batch it came with: sums run over one axis of the
state, one term after the other, in float32.
"""

from __future__ import annotations

import numpy as np

from anychip.hostops.primitives import Attrs, Inputs, Kernel, Outputs, silu
from anychip.hostops.views import Array, Floats, floats


def _started(inputs: Inputs) -> tuple[Array, Array]:
    """Sequences that have tokens, and the first token of each."""
    first, end = inputs["cu_q"][:-1], inputs["cu_q"][1:]
    rows = np.flatnonzero(end > first)
    return rows, first[rows]


def causal_conv1d(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The token's own input, then those before it, from the step or from the state."""
    x, weight, state = inputs["x"], floats(inputs["weight"]), inputs["state"]
    kept = state.shape[1]
    rows, first = _started(inputs)
    begun = inputs["cu_q"][inputs["token_rows"]]
    local = np.arange(len(x)) - begun
    held = inputs["state_from"][inputs["token_rows"]]
    total = np.zeros(x.shape, np.float32)
    for back in range(kept, -1, -1):
        own = np.zeros(x.shape, np.float32)
        inside, earlier = local >= back, (local < back) & (inputs["positions"] >= back)
        own[inside] = x[np.flatnonzero(inside) - back]
        own[earlier] = state[held[earlier], kept + local[earlier] - back]
        total += own * weight[:, kept - back]
    if inputs.get("bias") is not None:
        total += floats(inputs["bias"])
    outputs["y"][...] = silu(total) if attrs["activation"] == "silu" else total
    counts, starts = (inputs["cu_q"][1:] - inputs["cu_q"][:-1])[rows], inputs["positions"][first]
    lines = [
        _line(x[a : a + n], state[s], int(p))
        for a, n, s, p in zip(first, counts, inputs["state_from"][rows], starts, strict=True)
    ]
    for target, line in zip(inputs["state_to"][rows], lines, strict=True):
        state[target] = line


def _line(x: Array, held: Array, start: int) -> Array:
    """The last inputs of a sequence, as many as are kept. start: position of its first token."""
    kept = len(held)
    before = held.copy()
    before[: max(kept - start, 0)] = 0
    line: Array = np.concatenate([before, x])[-kept:]
    return line


def gated_delta_rule(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One token of each sequence that has one left, until none has."""
    v, state, y = floats(inputs["v"]), inputs["state"], outputs["y"]
    share = v.shape[1] // inputs["k"].shape[1]
    q, k = (floats(inputs[name]).repeat(share, axis=1) for name in "qk")
    decay, beta = np.exp(floats(inputs["decay"])), floats(inputs["beta"])
    rows, first = _started(inputs)
    counts = inputs["cu_q"][1:][rows] - first
    memory = state[inputs["state_from"][rows]]
    memory[inputs["positions"][first] == 0] = 0
    for step in range(int(counts.max(initial=0))):
        left = np.flatnonzero(counts > step)
        t = first[left] + step
        now = memory[left] * decay[t][:, :, None, None]
        error = (v[t] - _read(now, k[t])) * beta[t][:, :, None]
        now += k[t][..., None] * error[:, :, None, :]
        y[t] = _read(now, q[t]) * np.float32(attrs["scale"])
        memory[left] = now
    state[inputs["state_to"][rows]] = memory


def _read(memory: Floats, key: Floats) -> Floats:
    """key [N, H, K] @ memory [N, H, K, V] -> [N, H, V]."""
    found: Floats = (memory * key[..., None]).sum(axis=2)
    return found


KERNELS: dict[str, Kernel] = {
    "causal_conv1d": causal_conv1d,
    "gated_delta_rule": gated_delta_rule,
}
