"""Bodies of the OpenAI endpoints: fields as in OpenAI's API reference, extensions as SGLang's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from anychip.http.errors import bad_request
from anychip.request import NO_LOGPROBS
from anychip.server.generation import Usage as Counts
from anychip.server.grammar_fields import wish_of
from anychip.server.logprobs import ChatLogprobs, CompletionLogprobs, PromptLogprobs
from anychip.server.sampling import Sampling, SharedFields, check_logprobs, shared_settings


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """include_usage: a last chunk with the usage of the whole call."""

    include_usage: bool = False


class SamplingFields(SharedFields, frozen=True, kw_only=True):
    """How tokens are chosen and where an answer ends, as completions and responses spell it, and
    where the call comes from, as in `OriginFields`: no struct has two bases."""

    rid: str | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    priority: int | None = None
    min_tokens: int | None = None
    seed: int | None = None


class CallFields(SamplingFields, frozen=True, kw_only=True):
    """What both kinds of completion share. Null is the default for every field.

    response_format to guided_grammar: ways to ask for
    structured output, of which a call has one; see grammar_fields.py. prompt_logprobs: of each
    token of the prompt, and so many likeliest beside it.
    """

    model: str | None = None
    n: int | None = None
    max_tokens: int | None = None
    prompt_logprobs: int | None = None
    include_stop_str_in_output: bool | None = None
    response_format: dict[str, Any] | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    choice: list[str] | None = None
    structural_tag: str | dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class CompletionRequest(CallFields, frozen=True, kw_only=True):
    """Body of /v1/completions. prompt: text or ids, one or several.

    logprobs: of each token, and so many likeliest beside it. echo: the prompt comes back before
    its continuation. best_of: so many are drawn, of which the `n` most probable are told.
    emit_token_ids: the answer, in place of what the model would say, where the server allows it.
    """

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    emit_token_ids: list[int] | None = None


class ChatRequest(CallFields, frozen=True, kw_only=True):
    """Body of /v1/chat/completions. chat_template_kwargs: variables for the template.

    logprobs: whether each token's is told; top_logprobs: and so many likeliest beside it.
    """

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None


NotYet = Mapping[str, Collection[Any]]

_NOT_YET: NotYet = {
    "lora_path": (),
    "return_token_ids": (False,),
    "return_hidden_states": (False,),
}

COMPLETION_NOT_YET: NotYet = {
    **_NOT_YET,
    "suffix": ("",),
}

CHAT_NOT_YET: NotYet = {
    **_NOT_YET,
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "service_tier": ("auto", "default"),
    "verbosity": (),
    "web_search_options": (),
}


def sampling_of(call: CallFields) -> Sampling:
    """The call's settings with the defaults of the OpenAI API, ranges not yet checked."""
    limit, name = call.max_tokens, "max_tokens"
    if isinstance(call, ChatRequest) and call.max_completion_tokens is not None:
        limit, name = call.max_completion_tokens, "max_completion_tokens"
    return Sampling(
        max_tokens=limit,
        max_tokens_name=name,
        min_tokens=call.min_tokens or 0,
        seed=call.seed,
        grammar=wish_of(call),
        logprobs=_logprobs(call),
        prompt_logprobs=_prompt_logprobs(call),
        **_with_kept_stop(call),
    )


def _with_kept_stop(call: CallFields) -> dict[str, Any]:
    """The shared settings; `include_stop_str_in_output` is vLLM's word for `no_stop_trim`."""
    given = shared_settings(call)
    if call.include_stop_str_in_output is not None:
        if call.no_stop_trim not in (None, call.include_stop_str_in_output):
            name = "include_stop_str_in_output"
            raise bad_request(f"{name} and no_stop_trim say opposite things; send one", name)
        given["no_stop_trim"] = call.include_stop_str_in_output
    return given


def _prompt_logprobs(call: CallFields) -> int:
    if call.prompt_logprobs is not None and call.stream:
        raise bad_request(
            "prompt_logprobs come with a whole answer; leave out stream", "prompt_logprobs"
        )
    return check_logprobs("prompt_logprobs", call.prompt_logprobs)


def _logprobs(call: CallFields) -> int:
    if not isinstance(call, ChatRequest):
        assert isinstance(call, CompletionRequest)
        return check_logprobs("logprobs", call.logprobs)
    top = check_logprobs("top_logprobs", call.top_logprobs)
    if top > 0 and not call.logprobs:
        raise bad_request("top_logprobs needs logprobs: true", "top_logprobs")
    return max(top, 0) if call.logprobs else NO_LOGPROBS


def check_stream_options(call: CallFields) -> None:
    """ApiError 400 where stream_options come without stream, as at OpenAI."""
    if call.stream_options is not None and not call.stream:
        raise bad_request("stream_options need stream: true", "stream_options")


class PromptDetails(msgspec.Struct, frozen=True):
    """cached_tokens: prompt tokens whose KV came from the prefix cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call as OpenAI spells them; cached_tokens always."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


def usage_of(counts: Counts) -> Usage:
    """OpenAI's form of a call's counts."""
    return Usage(
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        total_tokens=counts.prompt_tokens + counts.completion_tokens,
        prompt_tokens_details=PromptDetails(counts.cached_tokens),
    )


class FunctionPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The function that a tool call calls. arguments: a JSON text, or a part of one."""

    name: str | None = None
    arguments: str


class MessageToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A whole tool call of the assistant."""

    id: str
    function: FunctionPart
    type: str = "function"


class ToolCallPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a chunk adds to a tool call; the first one names it."""

    index: int
    function: FunctionPart
    id: str | None = None
    type: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The assistant's answer. content: null where it is tool calls alone."""

    content: str | None
    role: str = "assistant"
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[MessageToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. matched_stop: the stop string or token that ended it."""

    index: int
    message: Message
    finish_reason: str | None
    matched_stop: str | int | None = None
    logprobs: ChatLogprobs | None = None


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of /v1/chat/completions."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    object: str = "chat.completion"


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a chunk adds to the message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallPart] | None = None


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice's part of a chunk."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    matched_stop: str | int | msgspec.UnsetType | None = msgspec.UNSET
    logprobs: ChatLogprobs | None = None


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a streamed chat. usage: null until the last, where it was asked for."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: str = "chat.completion.chunk"


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One completion, or one choice's part of a streamed one."""

    index: int
    text: str
    finish_reason: str | None = None
    matched_stop: str | int | msgspec.UnsetType | None = msgspec.UNSET
    logprobs: CompletionLogprobs | None = None
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of /v1/completions, and its stream's events."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: str = "text_completion"


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of /v1/models. max_model_len: context length in tokens."""

    id: str
    created: int
    max_model_len: int
    root: str
    object: str = "model"
    owned_by: str = "anychip"


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of /v1/models."""

    data: list[ModelCard]
    object: str = "list"
