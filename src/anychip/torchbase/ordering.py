"""Primitives that compare: the largest, the k largest, the order of all."""

from __future__ import annotations

import torch

from anychip.torchbase.kernel import Attrs, Inputs, Kernel, Outputs, values


def first_largest(x: torch.Tensor) -> torch.Tensor:
    """Index of the first of the largest numbers of the last dimension, int32; -1 where all are NaN.

    Torch's own argmax takes a NaN, and not every device returns the first of equals.
    """
    number = ~torch.isnan(x)
    numbers = torch.where(number, x, -torch.inf)
    best = number & (numbers == numbers.amax(dim=-1, keepdim=True))
    count = x.shape[-1]
    place = torch.arange(count, dtype=torch.int32, device=x.device)
    index = torch.where(best, place, count).amin(dim=-1)
    return torch.where(index == count, -1, index)


def argmax(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The first of the largest; -1 where all are NaN."""
    outputs["y"].copy_(first_largest(inputs["x"]))


def _descending(inputs: Inputs, outputs: Outputs, count: int) -> None:
    x = inputs["x"]
    order = torch.sort(values(x), dim=-1, descending=True, stable=True).indices[..., :count]
    outputs["values"].copy_(torch.gather(x, -1, order))
    outputs["indices"].copy_(order)


def topk(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """The k largest: torch's own topk does not promise an order among equals."""
    _descending(inputs, outputs, attrs["k"])


def sort(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Descending and stable."""
    _descending(inputs, outputs, inputs["x"].shape[-1])


KERNELS: dict[str, Kernel] = {"argmax": argmax, "topk": topk, "sort": sort}
