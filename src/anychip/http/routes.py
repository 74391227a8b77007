"""Which of an application's routes a call was found by."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route
from starlette.types import Scope


def pattern_among(routes: Sequence[Route], scope: Scope) -> str | None:
    """The pattern that a call's path was found by; None before it was, and for unknown ones."""
    found = [route.path for route in routes if route.endpoint is scope.get("endpoint")]
    return scope["path"] if scope["path"] in found else next(iter(found), None)
