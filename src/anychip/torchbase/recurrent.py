"""Recurrent state, in float32: the next token of every sequence at once, then the one behind it.

Which tokens belong to which sequence is read from the host half of the indices.
"""

from __future__ import annotations

import torch
from torch.nn.functional import silu

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs


def _spans(inputs: Inputs) -> tuple[list[int], list[int], list[int]]:
    """Sequences that have tokens, the first token of each, and how many it has."""
    ends = inputs["cu_q"].host.tolist()
    rows = [row for row in range(len(ends) - 1) if ends[row + 1] > ends[row]]
    return rows, [ends[row] for row in rows], [ends[row + 1] - ends[row] for row in rows]


def causal_conv1d(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Inputs of each distance, from the step or from the state, weighed and added."""
    x, weight, state = inputs["x"], inputs["weight"], inputs["state"]
    rows, kept = inputs["token_rows"].device, state.shape[1]
    here = torch.arange(len(x), device=x.device)
    local = here - inputs["cu_q"].device[rows]
    held, positions = inputs["state_from"].device[rows], inputs["positions"].device
    total = torch.zeros_like(x, dtype=torch.float32)
    for back in range(kept, -1, -1):
        from_step = x[(here - back).clamp_min(0)]
        line = from_step
        if back:
            from_state = state[held, (local - back + kept).clamp(0, kept - 1)]
            line = torch.where((local >= back)[:, None], from_step, from_state)
        line = torch.where((positions >= back)[:, None], line.float(), 0.0)
        total += line * weight[:, kept - back]
    if inputs.get("bias") is not None:
        total += inputs["bias"]
    outputs["y"].copy_(silu(total) if attrs["activation"] == "silu" else total)
    _keep(inputs)


def _keep(inputs: Inputs) -> None:
    """Each sequence's last inputs into its slot, all read before any is written."""
    x, state = inputs["x"], inputs["state"]
    rows, first, counts = _spans(inputs)
    if not rows:
        return
    chosen = torch.tensor(rows, device=x.device)
    begun, count = (torch.tensor(n, device=x.device)[:, None] for n in (first, counts))
    places = torch.arange(state.shape[1], device=x.device)
    local = count - state.shape[1] + places
    held = inputs["state_from"].device[chosen][:, None]
    from_state = state[held, (count + places).clamp_max(state.shape[1] - 1)]
    line = torch.where((local >= 0)[..., None], x[(begun + local).clamp_min(0)], from_state)
    inside = inputs["positions"].device[begun] + local >= 0
    line = torch.where(inside[..., None], line, torch.zeros((), dtype=x.dtype, device=x.device))
    state[inputs["state_to"].device[chosen].long()] = line


def gated_delta_rule(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """One token of each sequence that has one left, until none has."""
    v, state, y = inputs["v"].float(), inputs["state"], outputs["y"]
    share = v.shape[1] // inputs["k"].shape[1]
    q, k = (inputs[name].float().repeat_interleave(share, dim=1) for name in "qk")
    keeps, beta = inputs["decay"].exp(), inputs["beta"]
    rows, first, counts = _spans(inputs)
    if not rows:
        return
    chosen = torch.tensor(rows, device=v.device)
    memory = state[inputs["state_from"].device[chosen].long()]
    begins = inputs["positions"].device[torch.tensor(first, device=v.device)] == 0
    memory[begins] = 0.0
    for step in range(max(counts)):
        left = [at for at, count in enumerate(counts) if count > step]
        at = torch.tensor(left, device=v.device)
        t = torch.tensor([first[one] + step for one in left], device=v.device)
        now = memory[at] * keeps[t][..., None, None]
        error = (v[t] - _read(now, k[t])) * beta[t][..., None]
        now += k[t][..., None] * error[:, :, None]
        y[t] = (_read(now, q[t]) * attrs["scale"]).to(y.dtype)
        memory[at] = now
    state[inputs["state_to"].device[chosen].long()] = memory


def _read(memory: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """key [N, H, K] @ memory [N, H, K, V] -> [N, H, V]."""
    return torch.matmul(key[:, :, None], memory)[:, :, 0]


KERNELS: dict[str, Kernel] = {
    "causal_conv1d": causal_conv1d,
    "gated_delta_rule": gated_delta_rule,
}
READS_HOST = frozenset(KERNELS.values())
