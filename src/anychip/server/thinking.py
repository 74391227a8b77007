"""Wishes about how a model thinks: they are the chat template's to fulfil, by its variables."""

from __future__ import annotations

from typing import Any

from anychip.http.errors import ApiError, bad_request
from anychip.server.service import Service


def effort_variables(service: Service, effort: str | None, field: str) -> dict[str, Any]:
    """For how hard it thinks; "none": not at all. ApiError 400 where the template cannot say it."""
    if effort is None:
        return {}
    if service.texts.template_reads("reasoning_effort"):
        return {"reasoning_effort": effort}
    if effort == "none":
        return thinking_variables(service, False, field)
    raise _unknown(field, "reasoning_effort")


def thinking_variables(service: Service, thinks: bool | None, field: str) -> dict[str, Any]:
    """For whether it thinks at all. ApiError 400 where it cannot be had."""
    if thinks is None:
        return {}
    if service.texts.template_reads("enable_thinking"):
        return {"enable_thinking": thinks}
    if thinks == bool(service.formats.reasoning):
        return {}  # that is what the model does anyway
    raise _unknown(field, "enable_thinking")


def _unknown(field: str, variable: str) -> ApiError:
    text = f"{field}: this model's chat template reads no {variable}; leave it out"
    return bad_request(text, field, "not_supported")
