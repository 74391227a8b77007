"""Choosing tokens: probabilities as wide as the device can, inverse CDF in id order."""

from __future__ import annotations

import torch

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs
from anychip.torchbase.ordering import first_largest
from anychip.torchbase.views import widest


def _shifted(logits: torch.Tensor) -> torch.Tensor:
    return logits - logits.amax(dim=-1, keepdim=True)


def softmax(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Probabilities."""
    outputs["y"].copy_(torch.softmax(inputs["logits"], dim=-1))


def log_softmax(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Natural log-probabilities."""
    outputs["y"].copy_(torch.log_softmax(inputs["logits"], dim=-1))


def greedy(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The largest logit; NaN is never chosen, all NaN gives -1."""
    outputs["tokens"].copy_(first_largest(inputs["logits"]))


def sample(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """All rows at once; greedy where the temperature is 0; -1 where nothing can be chosen."""
    logits = inputs["logits"]
    dtype = widest(logits.device)
    temperature = inputs["temperature"].to(dtype)[:, None]
    drawn = temperature > 0
    numbers = torch.where(torch.isnan(logits), -torch.inf, logits.to(dtype))
    weights = torch.exp(_shifted(numbers / torch.where(drawn, temperature, 1.0)))
    total = weights.sum(dim=-1, keepdim=True)
    possible = (total > 0) & torch.isfinite(total)
    p = torch.where(possible, weights / total, 0.0)
    kept = torch.where(p >= _threshold(p, inputs), p, 0.0)
    token = torch.where(possible[:, 0], _drawn(kept, inputs["noise"].to(dtype)), -1)
    outputs["tokens"].copy_(torch.where(drawn[:, 0], token, first_largest(logits)))


def _drawn(kept: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """The first token whose running sum exceeds noise times the total, at most the last kept."""
    running = torch.cumsum(kept, dim=-1)
    token = (running <= noise[:, None] * running[:, -1:]).sum(dim=-1)
    place = torch.arange(kept.shape[1], device=kept.device)
    return torch.minimum(token, torch.where(kept > 0, place, 0).amax(dim=-1))


def _threshold(p: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """[R, 1]: the smallest probability that stays."""
    largest = p.amax(dim=-1, keepdim=True)
    least = inputs["min_p"].to(p.dtype)[:, None] * largest
    top_k, top_p = inputs["top_k"].device[:, None], inputs["top_p"].to(p.dtype)[:, None]
    limited = (top_k >= 1) & (top_k < p.shape[1])
    if bool((limited | (top_p < 1.0)).any()):  # most often nobody asks, and sorting is dear
        ordered = torch.sort(p, dim=-1, descending=True).values
        place = (top_k.long() - 1).clamp(0, p.shape[1] - 1)
        smallest = torch.where(limited, ordered.gather(-1, place), 0.0)
        least = torch.maximum(least, torch.maximum(smallest, _prefix(ordered, smallest, top_p)))
    return torch.minimum(least, largest)


def _prefix(ordered: torch.Tensor, smallest: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """[R, 1]: smallest p of the shortest prefix of what top_k left whose sum reaches top_p."""
    stays = ordered >= smallest
    running = torch.cumsum(torch.where(stays, ordered, 0.0), dim=-1)
    count = (running < top_p * running[:, -1:]).sum(dim=-1, keepdim=True)
    last = stays.sum(dim=-1, keepdim=True) - 1
    found = ordered.gather(-1, torch.minimum(count, last).clamp(min=0))
    return torch.where(top_p < 1.0, found, 0.0)


KERNELS: dict[str, Kernel] = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "greedy": greedy,
    "sample": sample,
}
