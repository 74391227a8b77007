"""`emit_token_ids`: answers that a request dictates, to replay a record token by token.

The model computes every step as usual; the named token takes the place of the sampled one. Who
relies on answers must not be fooled by them, so a server takes the field only where it was started
with --allow-exact-replay.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anychip.http.errors import bad_request
from anychip.request import NO_LOGPROBS
from anychip.server.sampling import Sampling
from anychip.server.service import Service
from anychip.server.validation import check_ids

FIELD = "emit_token_ids"


def dictated(
    service: Service, sampling: Sampling, tokens: Sequence[int] | None, sequences: int
) -> Sampling:
    """The settings with the tokens that are to be produced, all of them and no more.

    sequences: of the call. ApiError 400 where that is not allowed, or does not go together.
    """
    if tokens is None:
        return sampling
    if not service.config.allow_exact_replay:
        raise bad_request(
            f"{FIELD}: this server does not take answers from its clients; start it with"
            " --allow-exact-replay, or leave it out",
            FIELD,
            "not_allowed",
        )
    _check(sampling, tokens, sequences)
    check_ids(tokens, service.info.vocab_size, FIELD)
    return msgspec.structs.replace(
        sampling,
        emit=tuple(tokens),
        max_tokens=len(tokens),
        min_tokens=0,
        ignore_eos=True,
        stop_token_ids=(),
    )


def _check(sampling: Sampling, tokens: Sequence[int], sequences: int) -> None:
    if not tokens:
        raise bad_request(f"{FIELD} is empty; name at least one token", FIELD)
    if sampling.max_tokens not in (None, len(tokens)):
        raise bad_request(
            f"{FIELD} has {len(tokens)} tokens and {sampling.max_tokens_name} is"
            f" {sampling.max_tokens}; leave that out, or send the same number",
            FIELD,
        )
    others = {
        "several prompts or choices": sequences > 1,
        "a grammar": sampling.grammar is not None,
        "logprobs": sampling.logprobs != NO_LOGPROBS,
        sampling.stop_name: bool(sampling.stop),
        "stop_regex": bool(sampling.stop_regex),
    }
    for name, asked in others.items():
        if asked:
            raise bad_request(f"{FIELD} together with {name}: leave one out", FIELD)
