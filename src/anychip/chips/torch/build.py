"""Plugins that give torch its device types, and their versions."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

CHIP = "torch"
PLUGINS = {"npu": "torch_npu", "mlu": "torch_mlu", "musa": "torch_musa"}
"""Device type -> the module that brings it; other types are torch's own."""


def load_plugin(device_type: str) -> None:
    """Import what makes torch know the type. Raises ImportError."""
    if device_type in PLUGINS:
        import_module(PLUGINS[device_type])


def plugin_versions() -> dict[str, str]:
    """Installed plugins, found without importing one."""
    found = {}
    for module in PLUGINS.values():
        if find_spec(module) is not None:
            try:
                found[module] = version(module)
            except PackageNotFoundError:
                found[module] = "unknown"
    return found
