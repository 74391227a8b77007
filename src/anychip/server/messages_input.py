"""What a /v1/messages call says, in the neutral form: messages, tools, sampling."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anychip.http.errors import bad_request
from anychip.request import GrammarSpec
from anychip.server.chat_tools import ToolWish
from anychip.server.grammar_fields import GrammarWish
from anychip.server.messages_protocol import CountRequest, MessagesRequest
from anychip.server.parts import kind_of, object_of, part_of, text_of, unknown_kind
from anychip.server.sampling import Sampling, shared_settings


class _Turn(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[dict[str, Any]]


class _Text(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    cache_control: dict[str, Any] | None = None


class _Thinking(msgspec.Struct, frozen=True, kw_only=True):
    thinking: str
    signature: str = ""


class _ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: dict[str, Any] | None = None


class _ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool = False
    cache_control: dict[str, Any] | None = None


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    cache_control: dict[str, Any] | None = None
    eager_input_streaming: bool | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    disable_parallel_tool_use: bool = False


class _Nothing(msgspec.Struct, frozen=True):
    pass


_BLOCKS: Mapping[str, Mapping[str, type[msgspec.Struct]]] = {
    "user": {"text": _Text, "tool_result": _ToolResult},
    "system": {"text": _Text},
    "assistant": {"text": _Text, "thinking": _Thinking, "tool_use": _ToolUse},
}
_UNSAID: Mapping[str, tuple[Any, ...]] = {
    "allowed_callers": (["direct"],),
    "caller": ({"type": "direct"},),
    "citations": ([], {"enabled": False}),
    "defer_loading": (False,),
    "input_examples": ([],),
    "toolset_name": (),
}
"""Fields of blocks and tools that are taken where they say nothing."""
_CHOICES = {"auto": "auto", "any": "required", "tool": "named", "none": "none"}


def messages_of(asked: CountRequest) -> list[dict[str, Any]]:
    """System text and turns as messages in the form of chats; neighbours of one role are one turn.

    ApiError 400 names the block that cannot be served.
    """
    messages: list[dict[str, Any]] = []
    if asked.system:
        messages.append({"role": "system", "content": _texts(asked.system, "system", "\n\n")})
    if not asked.messages:
        raise bad_request("messages is empty; send at least one", "messages")
    for index, turn in enumerate(asked.messages):
        where = f"messages[{index}]"
        one = part_of(turn, _Turn, where)
        if one.role not in _BLOCKS:
            text = f"{where}.role is {one.role!r}; use {', '.join(_BLOCKS)}"
            raise bad_request(text, f"{where}.role")
        for message in _turn(one, f"{where}.content"):
            _append(messages, message)
    return messages


def goes_on(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the answer goes on with the last message. ApiError 400 where that is no text."""
    last = messages[-1]
    if last["role"] != "assistant":
        return False
    if not last["content"] or "tool_calls" in last:
        text = "the last message is the assistant's, and is no text that could be gone on with"
        raise bad_request(text, "messages")
    return True


def _turn(turn: _Turn, where: str) -> list[dict[str, Any]]:
    """One turn: the results of tools, each a message of its own, and then what was said."""
    if isinstance(turn.content, str):
        return [{"role": turn.role, "content": turn.content}]
    results: list[dict[str, Any]] = []
    said: dict[str, Any] = {"role": turn.role, "content": None}
    for index, block in enumerate(turn.content):
        place = f"{where}[{index}]"
        kind, kinds = kind_of(block, place), _BLOCKS[turn.role]
        if kind not in kinds:
            raise unknown_kind(kind, kinds, place)
        one = part_of(block, kinds[kind], place, _UNSAID)
        if isinstance(one, _ToolResult):
            results.append(_result(one, place))
        else:
            _say(said, one)
    whole = said["content"] is not None or len(said) > 2
    return [*results, said] if whole or not results else results


def _result(one: _ToolResult, where: str) -> dict[str, Any]:
    text = _texts(one.content or "", f"{where}.content")
    shown = f"Error: {text}" if one.is_error else text
    return {"role": "tool", "tool_call_id": one.tool_use_id, "content": shown}


def _say(said: dict[str, Any], block: msgspec.Struct) -> None:
    if isinstance(block, _Text):
        said["content"] = (said["content"] or "") + block.text
    elif isinstance(block, _Thinking):
        said["reasoning_content"] = said.get("reasoning_content", "") + block.thinking
    elif isinstance(block, _ToolUse):
        # With blanks, as templates and models write JSON: so a call meets its cached tokens again.
        arguments = json.dumps(block.input, ensure_ascii=False)
        function = {"name": block.name, "arguments": arguments}
        call = {"id": block.id, "type": "function", "function": function}
        said["tool_calls"] = [*said.get("tool_calls", []), call]


def _append(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Add a message, to the last one where both are the same person's."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != message["role"] or message["role"] == "tool":
        messages.append(message)
        return
    for name in ("content", "reasoning_content"):
        both = [text for text in (last.get(name), message.get(name)) if text is not None]
        if both:
            last[name] = "\n\n".join(both)
    if "tool_calls" in message:
        last["tool_calls"] = [*last.get("tool_calls", []), *message["tool_calls"]]


def _texts(content: str | Sequence[Mapping[str, Any]], where: str, between: str = "") -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, block in enumerate(content):
        place = f"{where}[{index}]"
        kind = kind_of(block, place)
        if kind != "text":
            raise unknown_kind(kind, ("text",), place)
        texts.append(part_of(block, _Text, place, _UNSAID).text)
    return between.join(texts)


def tools_of(asked: CountRequest) -> ToolWish:
    """The call's tools in the form of chats. ApiError 400 for those that Anthropic would run."""
    tools = []
    for index, tool in enumerate(asked.tools or ()):
        where = f"tools[{index}]"
        kind = object_of(tool, where).get("type") or "custom"
        if kind != "custom":
            raise unknown_kind(str(kind), ("custom",), where)
        one = part_of(tool, _Tool, where, _UNSAID)
        function: dict[str, Any] = {"name": one.name, "parameters": one.input_schema}
        optional = {"description": one.description, "strict": one.strict}
        function |= {name: value for name, value in optional.items() if value is not None}
        tools.append({"type": "function", "function": function})
    if asked.tool_choice is None:
        return ToolWish(tools=tools, inside="", schema="input_schema")
    kind = kind_of(asked.tool_choice, "tool_choice")
    if kind not in _CHOICES:
        raise unknown_kind(kind, _CHOICES, "tool_choice")
    choice = part_of(asked.tool_choice, _Choice, "tool_choice")
    if kind == "tool":
        text_of(choice.name, "tool_choice.name")
    return ToolWish(
        tools=tools,
        choice=_CHOICES[kind],
        name=choice.name,
        parallel=not choice.disable_parallel_tool_use,
        inside="",
        schema="input_schema",
    )


def thinks(asked: CountRequest) -> bool | None:
    """Whether the model is to think; None: as it likes. ApiError 400 for a budget."""
    if asked.thinking is None:
        return None
    kind = kind_of(asked.thinking, "thinking")
    if kind == "enabled":
        text = "thinking: no budget of tokens is kept here; send {'type': 'adaptive'}"
        raise bad_request(text, "thinking", "not_supported")
    if kind not in ("adaptive", "disabled"):
        raise unknown_kind(kind, ("adaptive", "disabled"), "thinking")
    part_of(asked.thinking, _Nothing, "thinking", {"display": ("summarized",)})
    return kind == "adaptive"


class _Output(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None = None
    format: dict[str, Any] | None = None


class _Format(msgspec.Struct, frozen=True, kw_only=True):
    schema: dict[str, Any]


def effort_of(asked: CountRequest) -> str | None:
    """How hard the model is to think."""
    return part_of(asked.output_config or {}, _Output, "output_config").effort


def _grammar(asked: MessagesRequest) -> GrammarWish | None:
    """The schema of `output_config.format`; whether it can be served is checked later."""
    given = part_of(asked.output_config or {}, _Output, "output_config").format
    where = "output_config.format"
    if given is None:
        return None
    kind = kind_of(given, where)
    if kind != "json_schema":
        raise unknown_kind(kind, ("json_schema",), where)
    text = msgspec.json.encode(part_of(given, _Format, where).schema).decode()
    return GrammarWish(spec=GrammarSpec("json_schema", text), field=where)


def sampling_of(asked: MessagesRequest) -> Sampling:
    """The call's settings, ranges not yet checked."""
    return Sampling(
        max_tokens=asked.max_tokens,
        seed=asked.seed,
        stop=tuple(asked.stop_sequences or ()),
        stop_name="stop_sequences",
        grammar=_grammar(asked),
        **shared_settings(asked),
    )
