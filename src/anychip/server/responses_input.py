"""What a /v1/responses call says, in the neutral form: messages, tools, sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anychip.http.errors import bad_request
from anychip.request import NO_LOGPROBS, GrammarSpec
from anychip.server.chat_tools import ToolWish
from anychip.server.grammar_fields import GrammarWish
from anychip.server.parts import kind_of, part_of, text_of, unknown_kind
from anychip.server.responses_protocol import ResponsesRequest
from anychip.server.sampling import Sampling, check_logprobs, shared_settings

SCORES = "message.output_text.logprobs"
"""What `include` may name."""
MAX_METADATA, MAX_KEY_CHARS, MAX_VALUE_CHARS = 16, 64, 512
"""OpenAI's limits of metadata."""


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[dict[str, Any]]
    id: str | None = None
    status: str | None = None


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None


class _CallOutput(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    output: str | list[dict[str, Any]]
    id: str | None = None
    status: str | None = None


class _Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    content: list[dict[str, Any]] | None = None
    summary: list[dict[str, Any]] | None = None
    id: str | None = None
    status: str | None = None


class _Text(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    refusal: str


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


_ITEMS: Mapping[str, type[msgspec.Struct]] = {
    "message": _Message,
    "function_call": _Call,
    "function_call_output": _CallOutput,
    "reasoning": _Reasoning,
}
_TEXTS = ("input_text", "output_text", "reasoning_text", "summary_text", "text")
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_UNSAID: Mapping[str, tuple[Any, ...]] = {
    "annotations": ([],),
    "async": (False,),
    "caller": (),
    "encrypted_content": (),
    "logprobs": ([],),
    "name": (),
    "namespace": (),
    "phase": (),
    "prompt_cache_breakpoint": (),
}
"""Fields of items and their parts that are taken where they say nothing."""


def messages_of(given: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`input` as messages; what the assistant did in a row is one. ApiError 400 names the item."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not given:
        raise bad_request("input is empty; send at least one item", "input")
    messages: list[dict[str, Any]] = []
    for index, item in enumerate(given):
        where = f"input[{index}]"
        kind = kind_of(item, where, "message")
        if kind not in _ITEMS:
            raise unknown_kind(kind, _ITEMS, where)
        message = _message(part_of(item, _ITEMS[kind], where, _UNSAID), where)
        last = messages[-1] if messages else None
        if last is not None and last["role"] == message["role"] == "assistant":
            merge(last, message)
        else:
            messages.append(message)
    return messages


def _message(item: msgspec.Struct, where: str) -> dict[str, Any]:
    if isinstance(item, _Message):
        if item.role not in _ROLES:
            raise bad_request(
                f"{where}.role is {item.role!r}; use {', '.join(_ROLES)}", f"{where}.role"
            )
        text = _text(item.content, f"{where}.content")
        return {"role": _ROLES[item.role], "content": text}
    if isinstance(item, _Call):
        function = {"name": item.name, "arguments": item.arguments}
        return assistant_calls([{"id": item.call_id, "type": "function", "function": function}])
    if isinstance(item, _CallOutput):
        text = _text(item.output, f"{where}.output")
        return {"role": "tool", "tool_call_id": item.call_id, "content": text}
    assert isinstance(item, _Reasoning)
    name = "content" if item.content else "summary"
    text = _text(item.content or item.summary or "", f"{where}.{name}")
    return {"role": "assistant", "content": None, "reasoning_content": text}


def assistant_calls(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """An assistant's message that is calls alone."""
    return {"role": "assistant", "content": None, "tool_calls": calls}


def merge(last: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Make two messages of the assistant one."""
    for name in ("content", "reasoning_content"):
        if more.get(name) is not None:
            last[name] = (last.get(name) or "") + more[name]
    if "tool_calls" in more:
        last["tool_calls"] = [*last.get("tool_calls", []), *more["tool_calls"]]


def _text(content: str | Sequence[Mapping[str, Any]], where: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        place = f"{where}[{index}]"
        kind = kind_of(part, place)
        if kind == "refusal":
            texts.append(part_of(part, _Refusal, place, _UNSAID).refusal)
        elif kind in _TEXTS:
            texts.append(part_of(part, _Text, place, _UNSAID).text)
        else:
            raise unknown_kind(kind, ("input_text", "output_text", "refusal"), place)
    return "".join(texts)


def tools_of(asked: ResponsesRequest) -> ToolWish:
    """The call's tools in the form of chats. ApiError 400 for others than functions."""
    tools = []
    for index, tool in enumerate(asked.tools or ()):
        where = f"tools[{index}]"
        kind = kind_of(tool, where)
        if kind != "function":
            raise unknown_kind(kind, ("function",), where)
        unsaid = {"allowed_callers": (["direct"],), "defer_loading": (False,), "output_schema": ()}
        function = msgspec.structs.asdict(part_of(tool, _Function, where, unsaid))
        given = {name: value for name, value in function.items() if value is not None}
        tools.append({"type": "function", "function": given})
    parallel = asked.parallel_tool_calls is not False
    choice, name = _choice_of(asked.tool_choice)
    return ToolWish(tools=tools, choice=choice, name=name, parallel=parallel, inside="")


def _choice_of(given: str | dict[str, Any] | None) -> tuple[str, str | None]:
    if given is None:
        return "auto", None
    if isinstance(given, str):
        if given not in ("auto", "none", "required"):
            text = f"tool_choice is {given[:40]!r}; use auto, none, required or an object"
            raise bad_request(text, "tool_choice")
        return given, None
    kind = kind_of(given, "tool_choice")
    if kind != "function":
        raise unknown_kind(kind, ("function",), "tool_choice")
    return "named", text_of(given.get("name"), "tool_choice.name")


def sampling_of(asked: ResponsesRequest) -> Sampling:
    """The call's settings with OpenAI's defaults, ranges not yet checked."""
    return Sampling(
        max_tokens=asked.max_output_tokens,
        max_tokens_name="max_output_tokens",
        min_tokens=asked.min_tokens or 0,
        seed=asked.seed,
        logprobs=_logprobs(asked),
        grammar=_grammar(asked),
        **shared_settings(asked),
    )


def _logprobs(asked: ResponsesRequest) -> int:
    for index, name in enumerate(asked.include or ()):
        if name != SCORES:
            raise unknown_kind(name, (SCORES,), f"include[{index}]")
    top = check_logprobs("top_logprobs", asked.top_logprobs)
    if top > 0 and not asked.include:
        raise bad_request(f"top_logprobs needs include: [{SCORES!r}]", "top_logprobs")
    return max(top, 0) if asked.include else NO_LOGPROBS


class _Format(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


def _grammar(asked: ResponsesRequest) -> GrammarWish | None:
    """What `text.format` asks for; whether it can be served is checked later."""
    given, where = (asked.text or {}).get("format"), "text.format"
    kind = "text" if given is None else kind_of(given, where)
    if kind not in ("text", "json_object", "json_schema"):
        raise unknown_kind(kind, ("text", "json_object", "json_schema"), where)
    if kind == "text":
        return None
    if kind == "json_object":
        return GrammarWish(spec=GrammarSpec("json_object", ""), field=where)
    schema = part_of(given, _Format, where).schema
    if schema is None:
        raise bad_request(f"{where} has no schema", f"{where}.schema")
    text = msgspec.json.encode(schema).decode()
    return GrammarWish(spec=GrammarSpec("json_schema", text), field=where)


def effort_of(asked: ResponsesRequest) -> str | None:
    """How hard the model is to think. ApiError 400 for other wishes about it."""
    wishes = {"summary": (), "generate_summary": (), "context": (), "mode": ()}
    return part_of(asked.reasoning or {}, _ReasoningWish, "reasoning", wishes).effort


class _TextWish(msgspec.Struct, frozen=True, kw_only=True):
    format: dict[str, Any] | None = None


class _ReasoningWish(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None = None


class _Nothing(msgspec.Struct, frozen=True):
    pass


def check_wishes(asked: ResponsesRequest) -> None:
    """ApiError 400 for fields that contradict each other, or whose parts are not served."""
    part_of(asked.text or {}, _TextWish, "text", {"verbosity": ("medium",)})
    if asked.stream_options is not None and not asked.stream:
        raise bad_request("stream_options need stream: true", "stream_options")
    blurred = {"include_obfuscation": (False,)}
    part_of(asked.stream_options or {}, _Nothing, "stream_options", blurred)
    if asked.background and asked.store is False:
        raise bad_request("background: true needs store: true; it is read by its id", "background")
    _check_metadata(asked.metadata or {})


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        text = f"metadata has {len(metadata)} entries; at most {MAX_METADATA}"
        raise bad_request(text, "metadata")
    for key, value in metadata.items():
        if len(key) > MAX_KEY_CHARS or len(value) > MAX_VALUE_CHARS:
            text = (
                f"metadata[{key[:MAX_KEY_CHARS]!r}]: keys have at most {MAX_KEY_CHARS}"
                f" characters, values {MAX_VALUE_CHARS}"
            )
            raise bad_request(text, "metadata")
