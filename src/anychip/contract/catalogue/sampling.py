"""Choosing tokens. R rows, V vocabulary, logits float32. Noise comes from the plan: one uniform a
row, so that the same request draws the same token on every chip whatever shares its batch.

A NaN is never chosen. A row without a token to choose gives -1, which ends its request with an
error that says so: a broken weight must not read as an answer."""

from __future__ import annotations

from anychip.contract.signature import Arg, ArgKind, Signature, Tier

_LOGITS = Arg("logits", "float32", "R,V")

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
)
