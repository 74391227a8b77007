"""Request bodies: read within bounds, decoded, unknown fields refused by name, ranges checked."""

from __future__ import annotations

import math
import uuid
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from anychip.http.body import read_body
from anychip.http.errors import bad_request, wrong_field
from anychip.refusal import near

MAX_RID_CHARS = 256

HARMLESS = ("user", "store", "metadata", "prompt_cache_key", "safety_identifier")
"""Accepted and not acted on: they change nothing about the answer."""

_T = TypeVar("_T", bound=msgspec.Struct)


async def read_object(request: Request, limit: int) -> dict[str, Any]:
    """The body as a JSON object. ApiError for another content type, size, or what is no JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        shown = repr(kind) if kind else "none"
        raise bad_request(
            f"content type is {shown}; send 'Content-Type: application/json'",
            code="unsupported_content_type",
        )
    packed = request.headers.get("content-encoding", "").strip().lower()
    if packed not in ("", "identity"):
        raise bad_request(
            f"content encoding is {packed[:40]!r}; send the JSON as it is, without"
            " Content-Encoding",
            code="unsupported_content_encoding",
        )
    value = decode_json(await read_body(request, limit))
    if not isinstance(value, dict):
        raise bad_request(f"the body must be a JSON object, not {_kind(value)}")
    return value


def decode_json(body: bytes) -> Any:
    """Any JSON value. ApiError 400 says what is wrong and where."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise bad_request("the JSON is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise bad_request(
            f"the body is not valid JSON: {error}{_json_hint(body)}", code="bad_json"
        ) from None


def _json_hint(body: bytes) -> str:
    """What makes a text invalid that looks right to whoever sent it."""
    if body.startswith((BOM_UTF8, BOM_UTF16_LE, BOM_UTF16_BE)):
        return "; it begins with a byte order mark: send UTF-8 without one"
    if b"\\ud" in body.lower():
        return "; check for a lone surrogate (half of a \\ud83d-like escape)"
    return ""


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def convert(body: dict[str, Any], struct: type[_T], not_yet: Mapping[str, Collection[Any]]) -> _T:
    """`body` as `struct`. ApiError 400 names the field that is unknown, unsupported or mistyped.

    not_yet: fields that are known but not supported, with the values that ask for nothing; null
    is one of them for every field.
    """
    known = {field.encode_name for field in msgspec.structs.fields(struct)}
    rest = {}
    for name, value in body.items():
        if name in known:
            rest[name] = value
        elif name in not_yet:
            _refuse_not_yet(name, value, not_yet[name])
        elif name not in HARMLESS:
            raise bad_request(_unknown(name, {*known, *not_yet}), name, "unknown")
    try:
        return msgspec.convert(rest, struct)
    except msgspec.ValidationError as error:
        raise wrong_field(error) from None


def _unknown(name: str, known: Collection[str]) -> str:
    """What is wrong with a field; the nearest one where it may be a typing error, else all."""
    close = near(name, known)
    told = f"the nearest is {close!r}" if close else f"known are {', '.join(sorted(known))}"
    return f"unknown field {name[:100]!r}; {told}"


def _refuse_not_yet(name: str, value: object, neutral: Iterable[Any]) -> None:
    if value is None or any(type(value) is type(item) and value == item for item in neutral):
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value in neutral:
        return  # 0 and 0.0 alike
    raise bad_request(f"{name} is not supported yet; leave it out", name, "not_supported")


def within(name: str, value: float, low: float, high: float, way_out: str) -> None:
    """ApiError 400 for a number that is not finite or not within low .. high."""
    finite = isinstance(value, int) or math.isfinite(value)
    if not finite or not low <= value <= high:
        top = "" if high == math.inf else f" and at most {high}"
        raise bad_request(f"{name} is {value}; it must be at least {low}{top} ({way_out})", name)


def check_ids(ids: Sequence[int], vocab_size: int, name: str) -> None:
    """ApiError 400 for the first id outside [0, vocab_size)."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise bad_request(
                f"{name}[{position}] is {token}; the vocabulary has ids 0 to {vocab_size - 1}", name
            )


def rid_of(given: str | None, prefix: str) -> str:
    """The id of a call: the client's own, else a new one.

    ApiError 400 for one that cannot be shown in a log line.
    """
    rid = f"{prefix}{uuid.uuid4().hex}" if given is None else given
    if not (0 < len(rid) <= MAX_RID_CHARS and rid.isprintable()):
        raise bad_request(f"rid must be 1 to {MAX_RID_CHARS} printable characters", "rid")
    return rid
