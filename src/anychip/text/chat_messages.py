"""Messages of a chat as templates expect them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anychip.text.errors import TemplateError, require_unicode


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with `content` as one text, whether sent as text or as parts; null where an answer
    is tool calls alone. TemplateError names what is of the wrong shape."""
    if not messages:
        raise TemplateError("messages must hold at least one message")
    return [_plain_message(index, message) for index, message in enumerate(messages)]


_JSON = {
    str: "a string",
    list: "a list",
    dict: "an object",
    bool: "true or false",
    type(None): "null",
}


def _plain_message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise TemplateError(f"{where} must be an object, not {_kind(message)}")
    role = message.get("role")
    if not isinstance(role, str):
        raise TemplateError(f"{where}.role must be a string, not {_kind(role)}")
    content = _plain_content(f"{where}.content", message.get("content"), role)
    plain = {**message, "content": content}
    if plain.get("tool_calls") is None:
        plain.pop("tool_calls", None)
    else:
        _check_calls(f"{where}.tool_calls", plain["tool_calls"], role)
    return plain


def _kind(value: object) -> str:
    """What JSON calls it; null too where a field is missing."""
    return _JSON.get(type(value), "a number")


def _plain_content(where: str, content: Any, role: str) -> str | None:
    if content is None and role == "assistant":
        return None  # an answer that is tool calls alone
    if isinstance(content, str):
        require_unicode(content, where)
        return content
    if isinstance(content, list):
        return "".join(_part_text(f"{where}[{index}]", part) for index, part in enumerate(content))
    raise TemplateError(f"{where} must be a string or a list of text parts, not {_kind(content)}")


def _part_text(where: str, part: Any) -> str:
    if not isinstance(part, Mapping):
        raise TemplateError(f"{where} must be an object, not {_kind(part)}")
    kind = part.get("type")
    if kind != "text":
        raise TemplateError(f"{where} is of type {kind!r}; only 'text' parts are supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise TemplateError(f"{where}.text must be a string, not {_kind(text)}")
    require_unicode(text, where)
    return text


def _check_calls(where: str, calls: Any, role: str) -> None:
    if not isinstance(calls, list):
        raise TemplateError(f"{where} must be a list, not {_kind(calls)}")
    if calls and role != "assistant":
        raise TemplateError(f"{where}: a message of role {role!r} calls no tools")
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str):
            raise TemplateError(f"{where}[{index}].function.name must be a string")


def with_arguments(messages: Sequence[dict[str, Any]], *, as_text: bool) -> list[dict[str, Any]]:
    """The messages with the arguments of their tool calls as JSON texts, or as objects.

    TemplateError names a call whose arguments are no JSON object where one is needed.
    """
    return [
        {**message, "tool_calls": _calls_with(f"messages[{index}]", message, as_text)}
        if message.get("tool_calls")
        else message
        for index, message in enumerate(messages)
    ]


def _calls_with(where: str, message: dict[str, Any], as_text: bool) -> list[dict[str, Any]]:
    calls = []
    for index, call in enumerate(message["tool_calls"]):
        function = call["function"]
        given = function.get("arguments")
        place = f"{where}.tool_calls[{index}].function.arguments"
        arguments = _as_text(given) if as_text else _as_object(place, given)
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return calls


def _as_text(given: Any) -> str:
    """The text itself: what the model wrote, so that its cached tokens are found again."""
    return given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)


def _as_object(where: str, given: Any) -> dict[str, Any]:
    try:
        value = json.loads(given) if isinstance(given, str) and given.strip() else given or {}
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TemplateError(f"{where} must be a JSON object, not {_kind(value)}")
    return value
