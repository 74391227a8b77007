"""A model's name on a hub: `org/name`, `org/name@revision`, `org/name:Q4_K_M`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"(?P<id>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(@(?P<revision>[\w.-]+(/[\w.-]+)*))?"
    r"(:(?P<file>[\w.-]+(/[\w.-]+)*))?",
    re.ASCII,
)
_ENDINGS = (".gguf", ".safetensors", ".json", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class HubName:
    """id: "org/name". revision: branch, tag or commit. file: which .gguf, by its quantization or by
    its own name."""

    id: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.id}{revision}{f':{self.file}' if self.file else ''}"


def parse_name(text: str) -> HubName | None:
    """The name in a text; None where it is none, as a path to a file or `./folder` is."""
    found = _NAME.fullmatch(text)
    if found is None or found["id"].endswith(_ENDINGS):
        return None
    return HubName(found["id"], found["revision"], found["file"])
