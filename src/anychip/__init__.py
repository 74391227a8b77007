"""AnyChip: an LLM serving engine whose core never knows which chip it runs on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anychip.offline import Engine

__all__ = ["Engine", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`Engine`, imported when it is first asked for: importing the package stays cheap."""
    if name == "Engine":
        return import_module("anychip.offline").Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
