"""The tools of a chat: which there are, which may be called, and their limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anychip.http.errors import bad_request
from anychip.server.chat_formats import AnswerFormats
from anychip.server.parts import kind_of, object_of, text_of, unknown_kind

MAX_TOOLS = 128
MAX_NAME_CHARS = 128
MAX_SCHEMA_BYTES = 1 << 18
"""Of one tool's parameters, as JSON."""
MAX_SCHEMA_DEPTH = 32

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_CHOICES = ("auto", "none", "required")


class ToolWish(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools there are and which may be called.

    tools: in the form of OpenAI's chats. choice: auto, none, required, or named with its `name`.
    parallel: whether one answer may call several. inside, schema: where in a tool the dialect at
    hand has the function's fields, and its word for parameters, for error texts.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    choice: str = "auto"
    name: str | None = None
    parallel: bool = True
    inside: str = ".function"
    schema: str = "parameters"

    @property
    def offered(self) -> Sequence[Mapping[str, Any]]:
        """The tools that the model is told of."""
        return () if self.choice == "none" else self.tools


def choice_of(given: object) -> tuple[str, str | None]:
    """`tool_choice` of a chat: what it says, and the tool's name. ApiError 400 otherwise."""
    if given is None or isinstance(given, str):
        if given not in (None, *_CHOICES):
            text = f"tool_choice is {given[:40]!r}; use auto, none, required or an object"
            raise bad_request(text, "tool_choice")
        return given or "auto", None
    kind = kind_of(given, "tool_choice")
    if kind != "function":
        raise unknown_kind(kind, ("function",), "tool_choice")
    function = object_of(object_of(given, "tool_choice").get("function"), "tool_choice.function")
    return "named", text_of(function.get("name"), "tool_choice.function.name")


def check_tools(wish: ToolWish, formats: AnswerFormats, *, shown: bool) -> tuple[str, ...]:
    """Names of the tools that may be called. ApiError 400 names what is wrong with them.

    shown: whether the chat template tells the model of tools.
    """
    if len(wish.tools) > MAX_TOOLS:
        raise bad_request(f"tools has {len(wish.tools)} tools; at most {MAX_TOOLS}", "tools")
    names = [_name_of(f"tools[{index}]", tool, wish) for index, tool in enumerate(wish.tools)]
    for index, name in enumerate(names):
        if name in names[:index]:
            where = f"tools[{index}]{wish.inside}.name"
            raise bad_request(f"{where} is {name!r}, as another's is; name it anew", where)
    if wish.choice == "named" and wish.name not in names:
        text = f"tool_choice names {wish.name!r}, which is not among tools"
        raise bad_request(text, "tool_choice")
    if wish.choice in ("required", "named") and not names:
        raise bad_request("tool_choice needs tools", "tool_choice")
    if wish.offered and not formats.tools:
        raise bad_request(
            "tools: calls are not read here: the chat template writes them in no format that is"
            " known, or --tool-call-parser is none; start the server with another",
            "tools",
            "no_tool_call_parser",
        )
    if wish.offered and wish.choice == "auto" and not shown:
        raise bad_request(
            "tools: this model's chat template does not show them to the model, which would never"
            " call one by itself; force a call with tool_choice, or start the server with a"
            " template that shows tools (--chat-template FILE)",
            "tools",
            "tools_not_shown",
        )
    return tuple(names) if wish.offered else ()


def _name_of(where: str, tool: Mapping[str, Any], wish: ToolWish) -> str:
    """The name of a tool that is well-formed."""
    kind = kind_of(tool, where)
    if kind != "function":
        raise unknown_kind(kind, ("function",), where)
    function = object_of(tool.get("function"), f"{where}.function")
    where += wish.inside
    name = text_of(function.get("name"), f"{where}.name")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise bad_request(
            f"{where}.name is {name[:MAX_NAME_CHARS]!r}; it must be 1 to {MAX_NAME_CHARS}"
            " letters, digits, '_', '-' and '.'",
            f"{where}.name",
        )
    if function.get("description") is not None:
        text_of(function["description"], f"{where}.description")
    if not isinstance(function.get("strict"), bool | None):
        text = f"{where}.strict must be true or false"
        raise bad_request(text, f"{where}.strict")
    _check_schema(function.get("parameters"), f"{where}.{wish.schema}")
    return name


def _check_schema(schema: object, where: str) -> None:
    if schema is None:
        return
    size = len(msgspec.json.encode(object_of(schema, where)))
    if size > MAX_SCHEMA_BYTES:
        raise bad_request(f"{where} has {size} bytes; at most {MAX_SCHEMA_BYTES}", where)
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        raise bad_request(f"{where} is nested deeper than {MAX_SCHEMA_DEPTH} levels", where)


def _depth(value: object) -> int:
    """Levels of objects and arrays; the body's decoder has bounded them."""
    level, depth = [value], 0
    while level and depth <= MAX_SCHEMA_DEPTH:
        depth += 1
        level = [inner for one in level for inner in _inside(one)]
    return depth


def _inside(value: object) -> Sequence[object]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]
