"""What the renderer of chat templates and its parent say to each other, without jinja2, which the
parent needs for nothing: frames of msgpack both ways.
"""

from __future__ import annotations

from typing import Any

import msgspec


class RenderJob(msgspec.Struct, frozen=True):
    """One template to render (`variables`: None to compile it only), within `limit_s` seconds."""

    template: str
    variables: dict[str, Any] | None
    limit_s: float


class RenderReply(msgspec.Struct, frozen=True):
    """The rendered text, or why there is none."""

    text: str = ""
    error: str | None = None
