"""Mixtures of experts: rows sorted by expert, one product an expert that has any."""

from __future__ import annotations

import torch
from torch.nn import functional

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs
from anychip.torchbase.network import clamped
from anychip.torchbase.views import widest

LEAST = 1e-20
"""What a sum of weights is given before weights are divided by it."""


def route_experts(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """As wide as the device can: what is nearly equal is told apart as the logits tell it."""
    logits = inputs["logits"]
    scores = _scores(logits.to(widest(logits.device)), attrs["scoring"])
    bias = inputs.get("bias")
    choices = scores if bias is None else scores + bias
    choices = torch.where(choices.isnan(), -torch.inf, choices)
    if attrs["groups"] > 1:
        choices = _limited(choices, attrs)
    ids = _best(choices, attrs["k"])
    weights = scores.gather(1, ids)
    if attrs["scoring"] == "softmax_topk":
        weights = torch.softmax(weights, dim=-1)
    if attrs["renormalize"]:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + LEAST)
    outputs["weights"].copy_(weights * attrs["scale"])
    outputs["ids"].copy_(ids)


def _scores(logits: torch.Tensor, scoring: str) -> torch.Tensor:
    if scoring == "softmax":
        return torch.softmax(logits, dim=-1)
    return torch.sigmoid(logits) if scoring == "sigmoid" else logits


def _best(values: torch.Tensor, count: int) -> torch.Tensor:
    """Indices of the largest of each row, descending; the lower index wins ties."""
    return torch.sort(values, dim=-1, descending=True, stable=True).indices[:, :count]


def _limited(choices: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    """-inf for the experts outside of the best groups."""
    groups = attrs["groups"]
    members = choices.unflatten(1, (groups, choices.shape[1] // groups))
    count = 2 if attrs["group_score"] == "top2" else 1
    best = members.topk(count, dim=-1).values.sum(dim=-1)
    stays = torch.zeros_like(best, dtype=torch.bool)
    stays.scatter_(1, _best(best, attrs["groups_kept"]), True)
    return torch.where(stays[..., None], members, -torch.inf).flatten(1)


def grouped_linear(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Expert by expert, the rows that are its own; waits for the device to know which."""
    given = inputs["x"], inputs["weight"], inputs.get("bias")
    outputs["y"].copy_(_by_experts(given, inputs["experts"], attrs["experts_count"]))


def _by_experts(
    given: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None], experts: torch.Tensor, count: int
) -> torch.Tensor:
    """given: rows [N, K], matrices, bias -> [N, R] float32."""
    x, weight, bias = given
    matrices = weight.unflatten(0, (count, weight.shape[0] // count))
    narrow = x.dtype if x.dtype == weight.dtype else torch.float32
    order = torch.argsort(experts, stable=True)
    sizes = torch.bincount(experts, minlength=count).tolist()
    y = torch.zeros(x.shape[0], matrices.shape[1], device=x.device)
    for expert, rows in enumerate(order.split(sizes)):
        if len(rows):
            part = functional.linear(x[rows].to(narrow), matrices[expert].to(narrow)).float()
            y[rows] = part if bias is None else part + bias[expert]
    return y


def _gated(x: torch.Tensor, attrs: Attrs) -> torch.Tensor:
    """The gate of [N, 2 * I] in float32."""
    if attrs["activation"] == "swiglu_clamp":
        return clamped(x, attrs)
    gate, up = x.chunk(2, dim=-1)
    if attrs["activation"] == "silu":
        return functional.silu(gate) * up
    return functional.gelu(gate, approximate="tanh") * up


def expert_mlp(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Each token's row once for each of its experts, then the sum in their order."""
    x, ids, count = inputs["x"], inputs["ids"], attrs["experts_count"]
    tokens, chosen = ids.shape
    rows = x.repeat_interleave(chosen, dim=0)
    experts = ids.reshape(tokens * chosen)
    first = rows, inputs["gate_up"], inputs.get("gate_up_bias")
    inner = _gated(_by_experts(first, experts, count), attrs).to(x.dtype)
    second = inner, inputs["down"], inputs.get("down_bias")
    parts = _by_experts(second, experts, count).reshape(tokens, chosen, x.shape[1])
    total = torch.zeros(x.shape, device=x.device)
    for place in range(chosen):
        total += parts[:, place] * inputs["weights"][:, place, None]
    outputs["y"].copy_(total)


KERNELS: dict[str, Kernel] = {
    "route_experts": route_experts,
    "grouped_linear": grouped_linear,
    "expert_mlp": expert_mlp,
}
READS_DEVICE = frozenset({grouped_linear, expert_mlp})
"""Kernels that wait for what the device holds: they cannot be captured."""


def bytes_read(kernel: Kernel, attrs: Attrs) -> int:
    """What such a kernel copies to the host: how many rows each expert has, for each product."""
    counted: dict[Kernel, int] = {grouped_linear: 1, expert_mlp: 2}
    products = counted.get(kernel, 0)
    return products * 8 * attrs["experts_count"] if products else 0
