"""Bodies of the native endpoints: names as SGLang's."""

from __future__ import annotations

from typing import Any

import msgspec

from anychip.server.openai_protocol import NotYet
from anychip.server.origin import OriginFields
from anychip.server.sampling import SharedFields

DEFAULT_MAX_TOKENS = 128
"""SGLang's default of /generate."""


class NativeSampling(SharedFields, frozen=True, kw_only=True):
    """`sampling_params` of /generate. Null is the default for every field."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    sampling_seed: int | None = None
    n: int | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    choice: list[str] | None = None
    structural_tag: str | dict[str, Any] | None = None


class GenerateRequest(OriginFields, frozen=True, kw_only=True):
    """Body of /generate: text or input_ids, one or a list.

    return_logprob: of every output token, and of the prompt's from logprob_start_len on (-1: of
    none); top_logprobs_num: and so many likeliest beside each. emit_token_ids: the answer, in place
    of what the model would say, where the server allows it.
    """

    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    sampling_params: dict[str, Any] | None = None
    stream: bool = False
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None
    emit_token_ids: list[int] | None = None


LogprobRow = tuple[float | None, int, str | None]
"""Logprob, token id, and the token's text where that was asked for."""


class MetaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """finish_reason: null until the last event. e2e_latency: seconds since the call arrived."""

    id: str
    finish_reason: dict[str, Any] | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    num_retractions: int
    e2e_latency: float
    input_token_logprobs: list[LogprobRow] | msgspec.UnsetType = msgspec.UNSET
    output_token_logprobs: list[LogprobRow] | msgspec.UnsetType = msgspec.UNSET
    input_top_logprobs: list[list[LogprobRow] | None] | msgspec.UnsetType = msgspec.UNSET
    output_top_logprobs: list[list[LogprobRow]] | msgspec.UnsetType = msgspec.UNSET


class GenerateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence; a list of them for several. index: in the events of several."""

    index: int | msgspec.UnsetType = msgspec.UNSET
    text: str
    output_ids: list[int]
    meta_info: MetaInfo


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /tokenize: prompt (text is another name for it), one or a list."""

    prompt: str | list[str] | None = None
    text: str | list[str] | None = None
    add_special_tokens: bool = True
    model: str | None = None


class TokenizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Lists of each for several texts."""

    tokens: list[int | list[int]]
    count: int | list[int]
    max_model_len: int


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /detokenize: ids, one list or several."""

    tokens: list[int | list[int]]
    skip_special_tokens: bool = True
    model: str | None = None


class DetokenizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The text as `text` (SGLang) and `prompt` (vLLM), a list for several."""

    text: str | list[str]
    prompt: str | list[str]


class FlushAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of /flush_cache."""

    success: bool
    message: str


class AbortRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /abort_request: one exact rid (or response id), or all."""

    rid: str | None = None
    abort_all: bool = False


class AbortAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """aborted: calls that were ended."""

    aborted: int


GENERATE_NOT_YET: NotYet = {
    "input_embeds": (),
    "image_data": (),
    "audio_data": (),
    "video_data": (),
    "token_ids_logprob": (),
    "return_hidden_states": (False,),
    "session_params": (),
    "lora_path": (),
    "custom_logit_processor": (),
    "log_metrics": (True,),
}

SAMPLING_NOT_YET: NotYet = {
    "beam_width": (1,),
    "custom_params": (),
    "stream_interval": (),
}
