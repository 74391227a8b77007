"""What a vendor with a torch plugin writes; docs/new_chip.md shows it."""

from __future__ import annotations

from anychip.contract.operators import Implementation
from anychip.contract.registration import register_chip
from anychip.torchbase.implementations import from_kernel
from anychip.torchbase.kernel import Attrs, Inputs, Outputs
from anychip.torchbase.queue import Stream
from anychip.torchbase.registration import TorchChip


def tanh(inputs: Inputs, outputs: Outputs, attrs: Attrs) -> None:
    """Your kernel: torch tensors in, the output written in place."""
    outputs["y"].copy_(inputs["x"].float().tanh())


@register_chip("granite", contract=(0, 2))
class GraniteChip(TorchChip):
    """A device that a torch plugin serves, with one operator of its own."""

    vendor = "example"
    _type = "cpu"  # yours: the word that your plugin gave torch

    def _better(self, stream: Stream) -> tuple[Implementation, ...]:
        """Tried first; torchbase's stay behind for what these decline."""
        return (from_kernel(stream, "tanh", tanh, prefix="granite"),)
