"""What travels between the server and the engine: a request in, step outputs out."""

from __future__ import annotations

from enum import Enum

import msgspec


class GrammarSpec(msgspec.Struct, frozen=True, array_like=True):
    """What an answer has to look like.

    kind: how `text` is to be read: json_schema, json_object, regex, ebnf, choice (a JSON array of
    texts), structural_tag or lark. any_whitespace: whether JSON may hold blanks between its parts.
    """

    kind: str
    text: str
    any_whitespace: bool = True


NO_LOGPROBS = -1
"""In `SamplingParams`: nobody wants to know how probable the tokens were."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How the next token is chosen. Ranges are checked by the server before any state exists.

    temperature: >= 0; 0 is greedy. top_k: -1 (off) or >= 1. top_p: (0, 1]. min_p: [0, 1].
    seed: keys the noise together with `draw` (which choice of `n`) and the output position.

    A logit is shaped in this order, before the temperature: divided by the repetition penalty
    where it is positive, else multiplied by it, if the token is in the prompt or the output;
    less the presence penalty if it is in the output, less the frequency penalty times how often;
    plus its bias. What the grammar, bad_words, allowed_token_ids (empty: all) or min_tokens rule
    out is never chosen. bad_words: token sequences of which the last token is ruled out where the
    output ends with the others.
    logprobs: 0: of each token of the output, n: of the n likeliest besides. prompt_logprobs: the
    same of the prompt's tokens from position prompt_logprobs_from on.
    emit: the tokens that are produced, whatever is sampled; empty: those that are sampled.
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
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    grammar: GrammarSpec | None = None
    logprobs: int = NO_LOGPROBS
    prompt_logprobs: int = NO_LOGPROBS
    prompt_logprobs_from: int = 1
    emit: tuple[int, ...] = ()

    @property
    def shapes_logits(self) -> bool:
        """Whether anything but temperature and thresholds decides on the next token."""
        return self.rules_tokens_out or self.adjusts_logits

    @property
    def rules_tokens_out(self) -> bool:
        """Whether only some tokens may follow: by a mask over the vocabulary."""
        return bool(self.allowed_token_ids or self.grammar)

    @property
    def adjusts_logits(self) -> bool:
        """Whether single tokens are made more or less likely, or banned."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0) or bool(
            self.logit_bias or self.bad_words or self.min_tokens
        )


class Request(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One sequence to continue. `n` choices are `n` requests that share a prompt.

    namespace: prefix-cache namespace (adapter, salt, key); pages are shared only inside one.
    priority: a higher one goes first where the scheduler looks at priorities.
    traced: whether its last output brings the timeline of what the engine did for it.
    """

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    namespace: str = ""
    priority: int = 0
    traced: bool = False


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
    IMPOSSIBLE = "impossible"  # what it asks for leaves nothing to say: the client's to mend


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of probabilities by the model's own logits: before shaping, temperature
    and thresholds.

    rank: 1 for the likeliest token. top: (token id, logprob) of the likeliest ones, best first.
    """

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


class Doing(str, Enum):
    """What an engine may do for a request, or to it."""

    GRAMMAR = "grammar"  # its grammar is compiled
    QUEUE = "queue"  # it waits for its turn
    PREFILL = "prefill"  # a step computes a chunk of its prompt (or of what it had, once retracted)
    DECODE = "decode"  # a step computes its last token and chooses the next
    RETRACTED = "retracted"  # it lost its pages: a moment


class Mark(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One entry of the timeline of a traced request.

    begin, end: seconds of the system's monotonic clock, which all processes share.
    Of a step: its number, the request's tokens in it, its rows, those that decode, its tokens, and
    how many steps are told in one (a very long timeline is: begin and end are then of all).
    """

    doing: Doing
    begin: float
    end: float
    step: int = 0
    tokens: int = 0
    rows: int = 0
    decoding: int = 0
    step_tokens: int = 0
    steps: int = 1


class StepOutput(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one step did for one request; the last one carries `finish`.

    token_ids: new tokens of this step (the stop token included, where one ended the request).
    cached_tokens: prompt tokens whose KV came from the prefix cache at first admission.
    logprobs: one for each of token_ids, where they were asked for. prompt_logprobs: those of the
    next prompt tokens; together, all from `prompt_logprobs_from` on.
    admitted_at: when it was first admitted, by the scheduler's clock (the system's monotonic
    one, which all processes share); 0.0: it never was.
    timeline: with the last output of a traced request, what the engine did for it, in order.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    cached_tokens: int = 0
    retractions: int = 0
    error: str | None = None
    failure: Failure = Failure.INTERNAL  # means something with `error` alone
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    admitted_at: float = 0.0
    timeline: tuple[Mark, ...] = ()
