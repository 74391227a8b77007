"""Objects inside a request body: each field obeyed or refused by its whole name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec

from anychip.http.errors import ApiError, bad_request, wrong_field

_T = TypeVar("_T", bound=msgspec.Struct)


def part_of(
    value: object, struct: type[_T], where: str, neutral: Mapping[str, Collection[Any]] = {}
) -> _T:
    """`value` as `struct`; `type` is read by the caller. ApiError 400 names the field.

    neutral: fields that are known but not obeyed, with the values that ask for nothing; null is
    one of them for every field.
    """
    given = object_of(value, where)
    known = {field.encode_name for field in msgspec.structs.fields(struct)}
    rest = {}
    for name, item in given.items():
        if name in known:
            rest[name] = item
        elif name not in neutral and item is not None and name != "type":
            text = f"unknown field '{where}.{name}'; known are {', '.join(sorted(known))}"
            raise bad_request(text, f"{where}.{name}", "unknown")
        elif name in neutral and item is not None and item not in neutral[name]:
            raise refused(f"{where}.{name}")
    try:
        return msgspec.convert(rest, struct)
    except msgspec.ValidationError as error:
        raise wrong_field(error, where) from None


def object_of(value: object, where: str) -> dict[str, Any]:
    """`value`, which must be a JSON object."""
    if not isinstance(value, dict):
        raise bad_request(f"{where} must be an object, not {type(value).__name__}", where)
    return value


def kind_of(value: object, where: str, default: str = "") -> str:
    """What an object's `type` says; ApiError 400 where it is no text."""
    kind = object_of(value, where).get("type", default)
    if not isinstance(kind, str) or not kind:
        raise bad_request(f"{where}.type must be a text", f"{where}.type")
    return kind


def unknown_kind(kind: str, known: Collection[str], where: str) -> ApiError:
    """400 for a type that is not served."""
    text = f"{where} is of type {kind!r}; only {', '.join(sorted(known))} can be served"
    return bad_request(text, where, "not_supported")


def refused(where: str) -> ApiError:
    """400 for a field that is known and not obeyed."""
    return bad_request(f"{where} is not supported yet; leave it out", where, "not_supported")


def text_of(value: object, where: str) -> str:
    """`value`, which must be a text."""
    if not isinstance(value, str):
        raise bad_request(f"{where} must be a text, not {type(value).__name__}", where)
    return value
