"""Wishes for structured output, in OpenAI's, SGLang's and vLLM's spellings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anychip.grammar.parts import Part, part_of, spec_of
from anychip.http.errors import ApiError, bad_request
from anychip.request import GrammarSpec

Kind = Callable[[Any, str], tuple[str, str] | None]
"""(value, field) → kind and text of a grammar; None: the value asks for none."""


class GrammarWish(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar, and the field that it came by, for error texts."""

    spec: GrammarSpec
    field: str


def wish_of(call: msgspec.Struct) -> GrammarWish | None:
    """The grammar that a call asks for, by whichever field. ApiError 400 for more than one, or for
    one that is written wrongly; whether it can be served is checked later."""
    found: list[GrammarWish] = []
    for field, kind in FIELDS.items():
        value = getattr(call, field, None)
        spec = None if value is None else kind(value, field)
        if spec is not None:
            found.append(GrammarWish(spec=GrammarSpec(*spec), field=field))
    if len(found) > 1:
        names = " and ".join(wish.field for wish in found)
        raise bad_request(f"{names} both ask for a grammar; send one", found[1].field)
    return found[0] if found else None


def behind_thoughts(wish: GrammarWish, before: list[Part]) -> GrammarWish:
    """The same wish for what comes after `before`. ApiError 400 for a grammar that has to be the
    whole answer."""
    if not before:
        return wish
    part = part_of(wish.spec)
    if part is None:
        raise bad_request(
            f"{wish.field}: Lark holds a whole answer, and this model thinks first; use another"
            " kind, or send separate_reasoning: false",
            wish.field,
        )
    spec = spec_of(*before, part, any_whitespace=wish.spec.any_whitespace)
    return GrammarWish(spec=spec, field=wish.field)


def refused(wish: GrammarWish, text: str, pointer: str | None) -> ApiError:
    """400 for a grammar that cannot be served, with the JSON pointer of the part at fault."""
    where = f" at {pointer}" if pointer else ""
    return bad_request(f"{wish.field}{where}: {text}", wish.field, "invalid_grammar")


def _response_format(value: Any, field: str) -> tuple[str, str] | None:
    given = _object(value, field)
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return "json_object", ""
    if kind == "structural_tag":
        return "structural_tag", _json(given, field)
    if kind != "json_schema":
        raise bad_request(
            f"{field}.type is {kind!r}; there is text, json_object, json_schema and structural_tag",
            f"{field}.type",
        )
    inner = _object(given.get("json_schema"), f"{field}.json_schema")
    if "schema" not in inner:
        raise bad_request(f"{field}.json_schema has no schema", f"{field}.json_schema.schema")
    for name in inner:
        if name not in ("name", "description", "schema", "strict"):
            raise bad_request(f"{field}.json_schema has the unknown field {name!r}", field)
    return "json_schema", _json(inner["schema"], f"{field}.json_schema.schema")


def _schema(value: Any, field: str) -> tuple[str, str]:
    """A schema as an object, or as its JSON text."""
    return "json_schema", value if isinstance(value, str) else _json(value, field)


def _choice(value: Any, field: str) -> tuple[str, str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise bad_request(f"{field} must be a list of texts", field)
    return "choice", _json(value, field)


def _text(kind: str) -> Kind:
    def read(value: Any, field: str) -> tuple[str, str]:
        if not isinstance(value, str):
            raise bad_request(f"{field} must be a text", field)
        return kind, value

    return read


def _json_object(value: Any, field: str) -> tuple[str, str] | None:
    return ("json_object", "") if value is True else None


def _structural_tag(value: Any, field: str) -> tuple[str, str]:
    """The tag as an object, or as its JSON text."""
    return "structural_tag", value if isinstance(value, str) else _json(value, field)


def _structured_outputs(value: Any, field: str) -> tuple[str, str] | None:
    """vLLM's: an object with one of these."""
    given = {name: one for name, one in _object(value, field).items() if one is not None}
    unknown = given.keys() - _WITHIN.keys()
    if unknown:
        raise bad_request(
            f"{field} has the unknown field {min(unknown)!r}; there is {', '.join(_WITHIN)}", field
        )
    if len(given) > 1:
        raise bad_request(f"{field} has {' and '.join(given)}; send one", field)
    for name, one in given.items():
        return _WITHIN[name](one, f"{field}.{name}")
    return None


_WITHIN: Mapping[str, Kind] = {
    "json": _schema,
    "regex": _text("regex"),
    "choice": _choice,
    "grammar": _text("ebnf"),
    "json_object": _json_object,
    "structural_tag": _structural_tag,
    "lark": _text("lark"),
}

FIELDS: Mapping[str, Kind] = {
    "response_format": _response_format,
    "json_schema": _schema,
    "regex": _text("regex"),
    "ebnf": _text("ebnf"),
    "choice": _choice,
    "structural_tag": _structural_tag,
    "structured_outputs": _structured_outputs,
    "guided_json": _schema,
    "guided_regex": _text("regex"),
    "guided_choice": _choice,
    "guided_grammar": _text("ebnf"),
}
"""Fields that ask for structured output: response_format is OpenAI's, guided_* vLLM's older
spelling of structured_outputs, the others SGLang's."""


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad_request(f"{field} must be an object", field)
    return value


def _json(value: Any, field: str) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise bad_request(f"{field} cannot be written as JSON: {error}", field) from error
