"""What every endpoint takes, answers and refuses, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anychip.engine.evidence import (
    LEAST_HERTZ,
    LONGEST_S,
    MOST_HERTZ,
    SHORTEST_S,
    Evidence,
)
from anychip.http.errors import AnthropicEnvelope, ErrorEnvelope
from anychip.server import messages_protocol, responses_events
from anychip.server.health import HealthAnswer, ReadyAnswer
from anychip.server.messages_protocol import (
    COUNT_NOT_YET,
    MESSAGES_NOT_YET,
    CountRequest,
    MessageObject,
    MessagesRequest,
    TokenCount,
)
from anychip.server.native_protocol import (
    GENERATE_NOT_YET,
    AbortAnswer,
    AbortRequest,
    DetokenizeAnswer,
    DetokenizeRequest,
    FlushAnswer,
    GenerateAnswer,
    GenerateRequest,
    TokenizeAnswer,
    TokenizeRequest,
)
from anychip.server.openai_protocol import (
    CHAT_NOT_YET,
    COMPLETION_NOT_YET,
    Chat,
    ChatChunk,
    ChatRequest,
    Completion,
    CompletionRequest,
    ModelCard,
    ModelList,
    NotYet,
)
from anychip.server.profile import (
    PROFILE_NOT_YET,
    ProfileRequest,
    ProfileStarted,
    ProfileStopped,
)
from anychip.server.responses_protocol import (
    RESPONSES_NOT_YET,
    ResponseDeleted,
    ResponseObject,
    ResponsesRequest,
)

_ANY: Mapping[int, str] = {
    401: "The key is missing or wrong.",
    403: "A foreign web page or host name, or the admin key is missing.",
}
_BODY: Mapping[int, str] = {
    **_ANY,
    400: "The request is wrong; the message names the field, the value, the limit.",
    408: "The body did not arrive.",
    413: "The body is longer than --max-request-bytes.",
    503: "Not now: Retry-After says when. No engine, too many calls, or shutting down.",
}
_STORED: Mapping[int, str] = {
    **_ANY,
    400: "The response was not created in a way that allows this.",
    404: "There is no such response, or no longer.",
    503: "The server is shutting down.",
}
_NO_MODEL = {404: "There is no such model."}
_GENERATE: Mapping[int, str] = {
    **_BODY,
    **_NO_MODEL,
    500: "The engine failed on the way.",
    504: "It ran for too long.",
}


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One path. answer: a struct, (struct,) where it may be a list of them, or a JSON schema.

    methods: in lower case. events: what each event of a stream holds, one of several structs.
    not_yet: fields that are taken with these values alone. query: parameters and their schemas.
    """

    path: str
    summary: str
    answer: Any
    methods: tuple[str, ...] = ("post",)
    body: Any = None
    body_needed: bool = True
    events: tuple[Any, ...] = ()
    query: Mapping[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    errors: Mapping[int, str] = msgspec.field(default_factory=lambda: _BODY)
    not_yet: NotYet = msgspec.field(default_factory=dict)
    media: str = "application/json"
    error: Any = ErrorEnvelope


_GET = ("get",)


def _both(path: str, **rest: Any) -> tuple[Endpoint, Endpoint]:
    """An endpoint that vLLM's clients find under /v1 and SGLang's without it."""
    errors = {**_BODY, **_NO_MODEL}
    return (
        Endpoint(path=path, errors=errors, **rest),
        Endpoint(path="/v1" + path, errors=errors, **rest),
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        path="/v1/chat/completions",
        summary="Answer a chat, whole or as a stream of events.",
        body=ChatRequest,
        answer=Chat,
        events=(ChatChunk,),
        errors=_GENERATE,
        not_yet=CHAT_NOT_YET,
    ),
    Endpoint(
        path="/v1/completions",
        summary="Continue one prompt or several, whole or as a stream of events.",
        body=CompletionRequest,
        answer=Completion,
        events=(Completion,),
        errors=_GENERATE,
        not_yet=COMPLETION_NOT_YET,
    ),
    Endpoint(
        path="/v1/messages",
        summary="Answer a chat as Anthropic does, whole or as a stream of events.",
        body=MessagesRequest,
        answer=MessageObject,
        events=messages_protocol.EVENTS,
        errors=_GENERATE,
        not_yet=MESSAGES_NOT_YET,
        error=AnthropicEnvelope,
    ),
    Endpoint(
        path="/v1/messages/count_tokens",
        summary="Tokens that the prompt of a message would have.",
        body=CountRequest,
        answer=TokenCount,
        errors={**_BODY, **_NO_MODEL},
        not_yet=COUNT_NOT_YET,
        error=AnthropicEnvelope,
    ),
    Endpoint(
        path="/v1/responses",
        summary="Answer an input: whole, as a stream of typed events, or in the background.",
        body=ResponsesRequest,
        answer=ResponseObject,
        events=responses_events.EVENTS,
        errors={**_GENERATE, 404: "There is no such model, or no such previous response."},
        not_yet=RESPONSES_NOT_YET,
    ),
    Endpoint(
        path="/v1/responses/{id}",
        methods=_GET,
        summary="A stored response, or the events of one that was streamed in the background.",
        answer=ResponseObject,
        events=responses_events.EVENTS,
        errors=_STORED,
        query={
            "stream": {"type": "boolean"},
            "starting_after": {"type": "integer", "minimum": 0, "maximum": 999_999_999},
        },
    ),
    Endpoint(
        path="/v1/responses/{id}",
        methods=("delete",),
        summary="Forget a stored response; one that runs is ended.",
        answer=ResponseDeleted,
        errors=_STORED,
    ),
    Endpoint(
        path="/v1/responses/{id}/cancel",
        summary="End a background response.",
        answer=ResponseObject,
        errors=_STORED,
    ),
    Endpoint(
        path="/generate",
        methods=("post", "put"),
        summary="Continue one prompt or several; the texts of a stream are cumulative.",
        body=GenerateRequest,
        answer=(GenerateAnswer,),
        events=(GenerateAnswer,),
        errors=_GENERATE,
        not_yet=GENERATE_NOT_YET,
    ),
    *_both("/tokenize", summary="Texts to ids.", body=TokenizeRequest, answer=TokenizeAnswer),
    *_both("/detokenize", summary="Ids to texts.", body=DetokenizeRequest, answer=DetokenizeAnswer),
    Endpoint(
        path="/v1/models", methods=_GET, summary="The served model.", answer=ModelList, errors=_ANY
    ),
    Endpoint(
        path="/v1/models/{name}",
        methods=_GET,
        summary="The model by its name.",
        answer=ModelCard,
        errors={**_ANY, **_NO_MODEL},
    ),
    Endpoint(
        path="/flush_cache", summary="Empty the prefix cache; an admin action.", answer=FlushAnswer
    ),
    Endpoint(
        path="/abort_request",
        summary="End a running call by its exact id; abort_all is an admin action.",
        body=AbortRequest,
        answer=AbortAnswer,
        errors={**_BODY, 404: "No such call runs."},
    ),
    Endpoint(
        path="/start_profile",
        summary="Begin a profile of the engine, in --profile-dir; an admin action.",
        body=ProfileRequest,
        body_needed=False,
        answer=ProfileStarted,
        not_yet=PROFILE_NOT_YET,
    ),
    Endpoint(
        path="/stop_profile",
        summary="End the profile and wait for its file; an admin action.",
        answer=ProfileStopped,
        errors={**_BODY, 500: "The file could not be written."},
    ),
    Endpoint(
        path="/health",
        methods=_GET,
        summary="Liveness.",
        answer=HealthAnswer,
        errors={**_ANY, 503: "The engine has failed or is silent."},
    ),
    Endpoint(
        path="/ready",
        methods=_GET,
        summary="Readiness.",
        answer=ReadyAnswer,
        errors={**_ANY, 503: "No request would be taken now."},
    ),
    Endpoint(
        path="/server_info",
        methods=_GET,
        summary="Configuration, engine, statistics.",
        answer={"type": "object"},
        errors=_ANY,
    ),
    Endpoint(
        path="/metrics",
        methods=_GET,
        summary="Prometheus' text format.",
        answer={"type": "string"},
        errors=_ANY,
        media="text/plain",
    ),
    Endpoint(
        path="/debug/stacks",
        methods=_GET,
        summary="Where both processes' threads spend the next seconds; an admin action.",
        answer=Evidence,
        errors={
            **_ANY,
            400: "The query is wrong.",
            409: "Another look is under way.",
            503: "No engine.",
            504: "The engine did not answer.",
        },
        query={
            "seconds": {"type": "number", "minimum": SHORTEST_S, "maximum": LONGEST_S},
            "hertz": {"type": "number", "minimum": LEAST_HERTZ, "maximum": MOST_HERTZ},
        },
    ),
    Endpoint(
        path="/openapi.json",
        methods=_GET,
        summary="This document.",
        answer={"type": "object"},
        errors=_ANY,
    ),
)
