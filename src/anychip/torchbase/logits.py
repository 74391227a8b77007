"""What surrounds a draw: masks, changes of single logits, log-probabilities. Nothing waits for the
device: what is left out is decided there."""

from __future__ import annotations

import torch

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs
from anychip.torchbase.views import widest

WORD = 32


def mask_logits(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """-inf where a token's bit is 0."""
    logits, words = inputs["logits"], inputs["mask"]
    rows, size = logits.shape
    bits = torch.arange(WORD, dtype=torch.int32, device=logits.device)
    allowed = (words[:, :, None] >> bits & 1).reshape(rows, words.shape[1] * WORD)[:, :size]
    outputs["y"].copy_(torch.where(allowed == 1, logits, -torch.inf))


def adjust_logits(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """A copy with a few elements changed. Padding repeats the write of an entry that is none;
    where all are padding, an element is written as it was."""
    logits, y = inputs["logits"], outputs["y"]
    y.copy_(logits)
    rows, ids = inputs["rows"].device.long(), inputs["ids"].device
    if y.numel() == 0 or rows.numel() == 0:
        return
    used = rows >= 0
    place = torch.where(used, rows * y.shape[1] + ids, 0)
    old = logits.view(-1)[place]
    repetition, bias = inputs["repetition"], inputs["bias"]
    scaled = torch.where(old > 0, old / repetition, old * repetition)
    new = torch.where(bias == -torch.inf, bias, scaled + bias)
    some = used.int().argmax()
    source = torch.where(used, torch.arange(len(rows), device=rows.device), some)
    new = torch.where(used, new, old)
    y.view(-1).scatter_(0, place[source], new[source])


def _numbers(logits: torch.Tensor) -> torch.Tensor:
    """NaN as -inf."""
    return torch.where(torch.isnan(logits), -torch.inf, logits)


def _less_total(values: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of some logits [R, any] of rows [R, V]: differences as wide as can be."""
    dtype = widest(numbers.device)
    top = numbers.amax(dim=-1, keepdim=True)
    total = torch.exp(numbers - top).sum(dim=-1, keepdim=True, dtype=dtype)
    return values.to(dtype) - top - torch.log(total)


def token_logprobs(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Log-probability and rank of one token a row."""
    numbers, given = _numbers(inputs["logits"]), inputs["given"].device
    ids = torch.where(given >= 0, given, inputs["sampled"])
    there = ids >= 0
    own = numbers.gather(1, ids.clamp(min=0).long()[:, None])
    logprob = _less_total(own, numbers)[:, 0]
    rank = 1 + (numbers > own).sum(dim=-1)
    outputs["logprob"].copy_(torch.where(there, logprob, torch.nan))
    outputs["rank"].copy_(torch.where(there, rank, 0))


def top_logprobs(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Torch's topk does not promise an order among equals, so keys are taken that have none: the
    float's bits in the order of integers above, what is left of the vocabulary below."""
    numbers, n = _numbers(inputs["logits"]), attrs["n"]
    size = numbers.shape[1]
    bits = (numbers + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    left = torch.arange(size - 1, -1, -1, device=numbers.device)
    keys = torch.topk((ordered << WORD) + left, n, dim=-1).values
    ids = size - 1 - (keys & 0xFFFFFFFF)
    outputs["ids"].copy_(ids)
    outputs["values"].copy_(_less_total(numbers.gather(1, ids), numbers))


KERNELS: dict[str, Kernel] = {
    "mask_logits": mask_logits,
    "adjust_logits": adjust_logits,
    "token_logprobs": token_logprobs,
    "top_logprobs": top_logprobs,
}
