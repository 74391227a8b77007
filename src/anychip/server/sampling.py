"""How a call wants its tokens chosen: fields, limits, and the engine's form of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anychip.http.errors import bad_request
from anychip.patterns.errors import PatternError
from anychip.request import NO_LOGPROBS, SamplingParams
from anychip.server.grammar_fields import GrammarWish
from anychip.server.validation import check_ids, within
from anychip.text.errors import require_unicode
from anychip.text.stop import stop_patterns
from anychip.text.tokenizer import Tokenizer

MAX_N = 128
MAX_STOPS = 32
MAX_STOP_CHARS = 4096
MAX_STOP_IDS = 256
MAX_BIASED = 4096
"""Tokens of logit_bias."""
MOST_BIAS = 100.0
"""OpenAI's limit of a bias, either way."""
REPETITION = (0.01, 2.0)
"""Limits of repetition_penalty: logits are divided by it and have to stay numbers of float32."""
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 256
MAX_LOGPROBS = 20
"""Likeliest tokens that are told beside each: as many as a step can find."""


class SharedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that the OpenAI and the native protocol spell alike; null is the default for each.

    logit_bias: by token id, written as a text.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stop_regex: str | list[str] | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    no_stop_trim: bool | None = None


SHARED = (*SharedFields.__struct_fields__, "n")
"""With the one that not all of these bodies have."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings of a call, whichever protocol they came by. Seed None: the server's.

    stop_regex: patterns that end the text (`patterns`). no_stop_trim: what ended it stays in
    it. spaces_between_special_tokens: nothing is put between tokens either way, see Detokenizer.
    logit_bias: by token id. logprobs, prompt_logprobs, emit: as in SamplingParams. *_name: how the
    protocol at hand spells a setting, for error texts.
    """

    max_tokens: int | None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = {}
    bad_words: tuple[str, ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    min_tokens: int = 0
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    stop_regex: tuple[str, ...] = ()
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    grammar: GrammarWish | None = None
    logprobs: int = NO_LOGPROBS
    prompt_logprobs: int = NO_LOGPROBS
    prompt_logprobs_from: int = 1
    emit: tuple[int, ...] = ()
    max_tokens_name: str = "max_tokens"
    min_tokens_name: str = "min_tokens"
    stop_name: str = "stop"


def shared_settings(call: msgspec.Struct) -> dict[str, Any]:
    """`Sampling`'s values of the shared fields that were sent. ApiError 400 for a bias of no token.

    call: a body; a field that its protocol lacks is not sent.
    """
    given = {name: value for name in SHARED if (value := getattr(call, name, None)) is not None}
    if "logit_bias" in given:
        _check_biased(given["logit_bias"])
        given["logit_bias"] = {_token(key): bias for key, bias in given["logit_bias"].items()}
    if "stop" in given:
        given["stop"] = stop_strings(given["stop"])
    if "stop_regex" in given:
        given["stop_regex"] = stop_strings(given["stop_regex"])
    for name in ("stop_token_ids", "bad_words", "allowed_token_ids"):
        if name in given:
            given[name] = tuple(given[name])
    return given


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """One stop string or several as a tuple."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _check_biased(bias: Mapping[str, float]) -> None:
    """Before any of them is looked at: millions would hold up the other calls."""
    if len(bias) > MAX_BIASED:
        raise bad_request(f"logit_bias has {len(bias)} tokens; at most {MAX_BIASED}", "logit_bias")


def _token(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 12):
        raise bad_request(
            f"logit_bias has the key {key[:40]!r}; its keys are token ids, such as '1234'",
            "logit_bias",
        )
    return int(key)


def check_sampling(sampling: Sampling, vocab_size: int) -> None:
    """ApiError 400 for the first value outside its limits."""
    within("temperature", sampling.temperature, 0.0, math.inf, "0 is greedy")
    within("min_p", sampling.min_p, 0.0, 1.0, "0 is off")
    within("n", sampling.n, 1, MAX_N, "send several requests for more")
    for name in ("frequency_penalty", "presence_penalty"):
        within(name, getattr(sampling, name), -2.0, 2.0, "0 is off")
    within("repetition_penalty", sampling.repetition_penalty, *REPETITION, "1 is off")
    if not 0 < sampling.top_p <= 1:
        raise bad_request(f"top_p is {sampling.top_p}; it must be over 0 and at most 1", "top_p")
    if sampling.top_k != -1 and not 1 <= sampling.top_k < 2**31:
        raise bad_request(f"top_k is {sampling.top_k}; use 1 or more, or -1 for all", "top_k")
    if sampling.seed is not None:
        within("seed", sampling.seed, -(2**63), 2**63 - 1, "it is a 64-bit integer")
    _check_lengths(sampling)
    _check_stops(sampling, vocab_size)
    _check_tokens(sampling, vocab_size)
    if sampling.grammar is not None and sampling.ignore_eos:
        raise bad_request(
            "ignore_eos together with a grammar: a complete answer could not end; leave one out",
            "ignore_eos",
        )


def _check_lengths(sampling: Sampling) -> None:
    most, name = sampling.max_tokens, sampling.max_tokens_name
    if most is not None and most < 1:
        raise bad_request(f"{name} is {most}; ask for 1 or more", name)
    least, name = sampling.min_tokens, sampling.min_tokens_name
    if least < 0 or (most is not None and least > most):
        top = "" if most is None else f", and at most {sampling.max_tokens_name}, which is {most}"
        raise bad_request(f"{name} is {least}; it must be at least 0{top}", name)


def _check_stops(sampling: Sampling, vocab_size: int) -> None:
    name = sampling.stop_name
    if len(sampling.stop) > MAX_STOPS:
        raise bad_request(f"{name} has {len(sampling.stop)} strings; at most {MAX_STOPS}", name)
    for stop in sampling.stop:
        if not 0 < len(stop) <= MAX_STOP_CHARS:
            raise bad_request(
                f"a stop string has {len(stop)} characters; 1 to {MAX_STOP_CHARS} are allowed",
                name,
            )
    if len(sampling.stop_token_ids) > MAX_STOP_IDS:
        count = len(sampling.stop_token_ids)
        text = f"stop_token_ids has {count} ids; at most {MAX_STOP_IDS}"
        raise bad_request(text, "stop_token_ids")
    check_ids(sampling.stop_token_ids, vocab_size, "stop_token_ids")
    try:
        stop_patterns(sampling.stop_regex)
    except PatternError as error:
        where = f"stop_regex[{error.index}]"
        raise bad_request(f"{where}: {error}", "stop_regex", "bad_pattern") from error


def _check_tokens(sampling: Sampling, vocab_size: int) -> None:
    """What singles out tokens."""
    check_ids(tuple(sampling.logit_bias), vocab_size, "logit_bias")
    for bias in sampling.logit_bias.values():
        within("logit_bias", bias, -MOST_BIAS, MOST_BIAS, "0 changes nothing")
    allowed = sampling.allowed_token_ids
    if allowed is not None:
        if not allowed:
            raise bad_request(
                "allowed_token_ids is empty, so nothing could be said; name some ids or leave it"
                " out",
                "allowed_token_ids",
            )
        if len(allowed) > vocab_size:
            raise bad_request(
                f"allowed_token_ids has {len(allowed)} ids, the vocabulary {vocab_size}",
                "allowed_token_ids",
            )
        check_ids(allowed, vocab_size, "allowed_token_ids")
    _check_bad_words(sampling.bad_words)


def _check_bad_words(words: Sequence[str]) -> None:
    if len(words) > MAX_BAD_WORDS:
        raise bad_request(f"bad_words has {len(words)} texts; at most {MAX_BAD_WORDS}", "bad_words")
    for word in words:
        if not 0 < len(word) <= MAX_BAD_WORD_CHARS:
            raise bad_request(
                f"a bad word has {len(word)} characters; 1 to {MAX_BAD_WORD_CHARS} are allowed",
                "bad_words",
            )
        require_unicode(word, "bad_words")


def check_logprobs(name: str, wanted: int | None) -> int:
    """How many likeliest tokens are told beside each; NO_LOGPROBS for null. ApiError 400."""
    if wanted is None:
        return NO_LOGPROBS
    within(name, wanted, 0, MAX_LOGPROBS, "0: of each token alone")
    return wanted


def sampling_params(
    sampling: Sampling, max_tokens: int, seed: int, tokenizer: Tokenizer
) -> SamplingParams:
    """The engine's form of checked settings, for the first choice (draw 0)."""
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=seed,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        min_tokens=sampling.min_tokens,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=tuple(sampling.logit_bias.items()),
        bad_words=_token_sequences(sampling.bad_words, tokenizer),
        allowed_token_ids=sampling.allowed_token_ids or (),
        grammar=None if sampling.grammar is None else sampling.grammar.spec,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        prompt_logprobs_from=sampling.prompt_logprobs_from,
        emit=sampling.emit,
    )


def of_draw(params: SamplingParams, draw: int) -> SamplingParams:
    """The settings of another choice; the prompt's probabilities are told with the first one."""
    if draw == 0:
        return params
    return msgspec.structs.replace(params, draw=draw, prompt_logprobs=NO_LOGPROBS)


def _token_sequences(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as it may be written: at the start of a text, and behind a space."""
    found = dict.fromkeys(
        tuple(tokenizer.encode(text, add_special_tokens=False))
        for word in words
        for text in (word, " " + word.lstrip())
    )
    return tuple(sequence for sequence in found if sequence)
