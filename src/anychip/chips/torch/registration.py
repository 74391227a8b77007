"""The torch chip: one device by its torch name, whoever makes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anychip.chips.torch.build import CHIP, load_plugin, plugin_versions
from anychip.chips.torch.memory import host_bytes
from anychip.chips.torch.operators import activation_dtypes
from anychip.contract.errors import ContractError
from anychip.contract.registration import Capabilities, Device, Option, Probe, register_chip
from anychip.torchbase.registration import OPTIONS, TorchChip


@register_chip(CHIP, contract=(0, 5))
class TorchDeviceChip(TorchChip):
    """Memory, operators and weights of torchbase on the device that an option names."""

    vendor = "anychip"
    options = (
        Option("device", str, "cpu", "torch's device: cpu, cuda, cuda:1, npu, mlu, musa, xpu, mps"),
        *OPTIONS,
    )

    @classmethod
    def _devices(cls) -> tuple[Device, ...]:
        """One: options are not known yet, so the number of a card stands in `device`."""
        return (Device(0, "the device that option 'device' names", host_bytes()),)

    @classmethod
    def probe(cls, options: Mapping[str, Any]) -> Probe:
        """Torch's version and its plugins', without importing any."""
        probe = super().probe(options)
        return replace(probe, versions={**probe.versions, **plugin_versions()})

    @classmethod
    def _torch_name(cls, device: int, options: Mapping[str, Any]) -> str:
        name: str = options["device"]
        if re.fullmatch(r"[a-z]+(:\d+)?", name) is None:
            hint = "say a type of device, or one with a number: cuda:1"
            raise ContractError(f"chip '{cls.name}': option device={name}: {hint}")
        load_plugin(name.partition(":")[0])
        return name

    def capabilities(self) -> Capabilities:
        """Torchbase's, in the order that suits the device."""
        floats = activation_dtypes(self._device.partition(":")[0])
        base = super().capabilities()
        scaled = (dtype for dtype in base.cache_dtypes if dtype.is_scaled)
        return replace(base, activation_dtypes=floats, cache_dtypes=(*floats, *scaled))
