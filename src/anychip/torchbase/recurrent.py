"""Recurrent state: the next token of every sequence at once, then the one behind it.

How many tokens a sequence brings is read on the host, so a step is as many launches as its longest
sequence has tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs

Run = tuple[int, int, int, int, int]
"""Of a sequence: its first token, how many, that one's position, slots read and written."""


def _runs(inputs: Inputs) -> list[Run]:
    """Of the sequences that have tokens."""
    cu_q, positions = (inputs[name].host.tolist() for name in ("cu_q", "positions"))
    slots = zip(*(inputs[name].host.tolist() for name in ("state_from", "state_to")), strict=True)
    spans = zip(cu_q[:-1], cu_q[1:], slots, strict=True)
    return [(a, end - a, positions[a], *pair) for a, end, pair in spans if end > a]


def causal_conv1d(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Each sequence's inputs behind those that were kept, shifted by one for each weight."""
    x, weight, state = (inputs[name] for name in ("x", "weight", "state"))
    bias = inputs.get("bias")
    kept, width = state.shape[1], weight.shape[1]
    lines = []
    for first, count, start, held, _target in _runs(inputs):
        before = state[held].clone()
        before[: max(kept - start, 0)] = 0
        line = torch.cat([before, x[first : first + count]])
        lines.append(line[count:])
        y = sum(line[j : j + count].float() * weight[:, j] for j in range(width))
        y = y if bias is None else y + bias
        y = functional.silu(y) if attrs["activation"] == "silu" else y
        outputs["y"][first : first + count].copy_(y)
    for run, line in zip(_runs(inputs), lines, strict=True):
        state[run[-1]].copy_(line)


def gated_delta_rule(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Sequences with the most tokens stand first: those that have one left are the first few."""
    runs = sorted(_runs(inputs), key=lambda run: -run[1])
    if not runs:
        return
    v, state = inputs["v"].float(), inputs["state"]
    share = v.shape[1] // inputs["k"].shape[1]
    q, k = (inputs[name].float().repeat_interleave(share, dim=1) for name in "qk")
    decay, beta = inputs["decay"].exp(), inputs["beta"]
    memory = state[[run[3] for run in runs]]
    memory[[run[2] == 0 for run in runs]] = 0
    for step in range(runs[0][1]):
        t = [run[0] + step for run in runs if run[1] > step]
        now = memory[: len(t)]
        now *= decay[t][..., None, None]
        error = (v[t] - _read(now, k[t])) * beta[t][..., None]
        now += k[t][..., None] * error[:, :, None]
        outputs["y"][t] = (_read(now, q[t]) * attrs["scale"]).to(outputs["y"].dtype)
    state[[run[4] for run in runs]] = memory


def _read(memory: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """key [N, H, K] @ memory [N, H, K, V] -> [N, H, V]; alike in every batch."""
    return (memory * key[..., None]).sum(dim=2)


KERNELS: dict[str, Kernel] = {
    "causal_conv1d": causal_conv1d,
    "gated_delta_rule": gated_delta_rule,
}
READS_HOST = frozenset(KERNELS.values())
"""Kernels that read the host half of an index."""
