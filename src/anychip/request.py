"""What travels between the server and the engine: a request in, step outputs out."""

from __future__ import annotations

from enum import Enum

import msgspec


class GrammarSpec(msgspec.Struct, frozen=True, array_like=True):
    """What the output has to follow, as it travels from the server to the engine.

    kind: json_schema, json_object, regex, ebnf, choice, structural_tag or lark. text: the schema's
    JSON text, the regex, the grammar, a JSON array of the choices, the structural tag's JSON text;
    nothing for json_object. any_whitespace: whether JSON may hold whitespace between its tokens.
    """

    kind: str
    text: str = ""
    any_whitespace: bool = True


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How the next token is chosen. Ranges are checked by the server before any state exists.

    temperature: >= 0; 0 is greedy. top_k: -1 (off) or >= 1. top_p: (0, 1]. min_p: [0, 1].
    seed: keys the noise together with `draw` (which choice of `n`) and the output position.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    draw: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One sequence to continue. `n` choices are `n` requests that share a prompt.

    namespace: prefix-cache namespace (adapter, salt, key); pages are shared only inside one.
    priority: a higher one goes first where the scheduler looks at priorities.
    """

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    namespace: str = ""
    priority: int = 0


class FinishReason(str, Enum):
    """Why a request ended."""

    STOP = "stop"  # an end-of-sequence or stop token was produced
    LENGTH = "length"  # max_tokens or the context length was reached
    ABORT = "abort"  # the client left or asked for it
    ERROR = "error"  # the engine could not go on with it; `StepOutput.error` says why


class Failure(str, Enum):
    """What kind of ERROR ended a request, for whoever has to answer it."""

    INTERNAL = "internal"  # the chip, the engine, or memory that is too small for it
    WAITED_TOO_LONG = "waited_too_long"  # never ran: the same request may be taken later
    RAN_TOO_LONG = "ran_too_long"


class StepOutput(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one step did for one request; the last one carries `finish`.

    token_ids: new tokens of this step (the stop token included, where one ended the request).
    cached_tokens: prompt tokens whose KV came from the prefix cache at first admission.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    cached_tokens: int = 0
    retractions: int = 0
    error: str | None = None
    failure: Failure = Failure.INTERNAL  # means something with `error` alone
