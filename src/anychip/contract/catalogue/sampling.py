"""Choosing tokens, and what they are chosen from. R rows, V vocabulary, logits float32.

Noise comes from the plan: one uniform a row, so that the same request draws the same token on
every chip whatever shares its batch.

A NaN is never chosen. A row without a token to choose gives -1, which ends its request with an
error that says so: a broken weight must not read as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.contract.dtype import DType
from anychip.contract.signature import (
    Arg,
    ArgKind,
    Attr,
    Signature,
    SignatureError,
    Specs,
    Tier,
    shape_of,
)
from anychip.contract.tensor import TensorSpec

_LOGITS = Arg("logits", "float32", "R,V")
WORD = 32
"""Tokens of one word of a mask."""


def _masked(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    shape, (_, words) = shape_of(inputs, "logits"), shape_of(inputs, "mask")
    if words != -(-shape[1] // WORD):
        raise SignatureError(
            f"mask_logits: 'mask' has {words} words a row, {shape[1]} tokens need "
            f"{-(-shape[1] // WORD)}"
        )
    return (TensorSpec(shape, DType.FLOAT32),)


def _top(inputs: Specs, attrs: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    (rows, size), n = shape_of(inputs, "logits"), attrs["n"]
    if not 1 <= n <= size:
        raise SignatureError(f"top_logprobs: n = {n} must lie in 1 .. {size}")
    return (TensorSpec((rows, n), DType.FLOAT32), TensorSpec((rows, n), DType.INT32))


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "softmax",
        Tier.COMPOSED,
        (_LOGITS,),
        (Arg("y", "float32", "R,V"),),
        "exp(x - max) / sum over the last dimension.",
    ),
    Signature(
        "log_softmax",
        Tier.COMPOSED,
        (_LOGITS,),
        (Arg("y", "float32", "R,V"),),
        "x - max - log(sum(exp(x - max))) over the last dimension.",
    ),
    Signature(
        "greedy",
        Tier.COMPOSED,
        (_LOGITS,),
        (Arg("tokens", "int32", "R"),),
        "The largest logit's token; the lowest id wins ties. A NaN is never chosen; a row of "
        "nothing but NaN gives -1.",
    ),
    Signature(
        "sample",
        Tier.COMPOSED,
        (
            _LOGITS,
            Arg("temperature", "float32", "R"),
            Arg("top_k", "int32", "R", ArgKind.INDEX),
            Arg("top_p", "float32", "R"),
            Arg("min_p", "float32", "R"),
            Arg("noise", "float32", "R"),
        ),
        (Arg("tokens", "int32", "R"),),
        "p = softmax(logits / temperature). A token stays when its p is at least: the k-th largest "
        "(top_k >= 1), min_p times the largest, and the smallest p of the shortest descending "
        "prefix whose sum reaches top_p (taken over what top_k left, renormalized). The token is "
        "the first in id order whose running sum over what stays exceeds noise times the total. "
        "temperature 0: greedy. Ties at a threshold all stay. A NaN logit has p 0; where the total "
        "is then no positive finite number (all NaN, all -inf, a +inf), the token is -1.",
    ),
    Signature(
        "mask_logits",
        Tier.COMPOSED,
        (_LOGITS, Arg("mask", "int32", "R,W")),
        (Arg("y", "float32", "R,V"),),
        "The logit where the token's bit is 1, else -inf. Token t is bit t % 32 of word t // 32, "
        "the lowest bit first; W = ceil(V / 32), bits beyond V are not read.",
        infer=_masked,
    ),
    Signature(
        "adjust_logits",
        Tier.COMPOSED,
        (
            _LOGITS,
            Arg("rows", "int32", "K", ArgKind.INDEX),
            Arg("ids", "int32", "K", ArgKind.INDEX),
            Arg("repetition", "float32", "K"),
            Arg("bias", "float32", "K"),
        ),
        (Arg("y", "float32", "R,V"),),
        "A copy in which each of the K entries changes one logit l, that of token ids[k] in row "
        "rows[k]: (l / repetition if l > 0 else l * repetition) + bias. A bias of -inf gives -inf "
        "whatever l is, NaN included; elsewhere NaN stays. repetition is positive. A row below 0 "
        "is padding: nothing is done, its id is not read. No (row, id) of row 0 or more twice.",
    ),
    Signature(
        "token_logprobs",
        Tier.COMPOSED,
        (
            _LOGITS,
            Arg("sampled", "int32", "R"),
            Arg("given", "int32", "R", ArgKind.INDEX),
        ),
        (Arg("logprob", "float32", "R"), Arg("rank", "int32", "R")),
        "Of each row's token, `given` where that is 0 or more, else `sampled`: the natural "
        "logarithm of its softmax, and 1 + how many logits are larger. An id below 0 gives NaN "
        "and rank 0. A NaN logit counts as -inf; where the softmax's total is then no positive "
        "finite number (all -inf, a +inf), the logprob is NaN.",
    ),
    Signature(
        "top_logprobs",
        Tier.COMPOSED,
        (_LOGITS,),
        (Arg("values", "float32", "R,N"), Arg("ids", "int32", "R,N")),
        "The n largest logits of a row as log-softmax (natural), descending; of equal logits the "
        "lower id first. 1 <= n <= V. NaN as in `token_logprobs`: it counts as -inf, and a row "
        "without a positive finite total has values NaN.",
        (Attr("n", "int"),),
        infer=_top,
    ),
)
