"""How tokens are chosen and told of, by numpy from transformers' raw logits, and runs to hold
against it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import tiny_models
from anychip.engine.offline import OfflineEngine
from anychip.request import FinishReason, Request, SamplingParams, TokenLogprob
from anychip.schedule.noise import uniform

CLOSE = 2e-3
"""How far two float32 computations of a logit may be apart here; see test_answers_logprobs.py."""


@dataclass
class Got:
    """All that came back for one request."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    scores: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    error: str | None = None
    cached_tokens: int = 0


def run(offline: OfflineEngine, requests: list[Request]) -> list[Got]:
    """Submit all, step until all have ended."""
    found = {request.id: Got() for request in requests}
    engine = offline.engine
    for request in requests:
        engine.submit(request)

    def loop() -> None:
        while any(got.finish is None for got in found.values()):
            for output in engine.step():
                got = found[output.request_id]
                got.tokens += output.token_ids
                got.logprobs += output.logprobs
                got.scores += output.prompt_logprobs
                got.finish, got.error = output.finish or got.finish, output.error or got.error
                got.cached_tokens = max(got.cached_tokens, output.cached_tokens)

    engine.serve(loop)
    assert engine.scheduler.check() == []
    return list(found.values())


def ask(name: str, prompt: list[int], **wishes: Any) -> Request:
    wishes = {"max_tokens": 6, "temperature": 0.0, "ignore_eos": True, **wishes}
    return Request(id=name, prompt=tuple(prompt), params=SamplingParams(**wishes))


def raw_logits(model: Any, ids: list[int]) -> np.ndarray:
    """[len(ids), V] in double precision, of transformers' float32."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def shape(logits: np.ndarray, request: Request, output: list[int]) -> np.ndarray:
    """The logits that the next token is chosen from, in the order of docs/sampling.md."""
    params, found = request.params, logits.copy()
    seen = sorted({*request.prompt, *output})
    penalty = params.repetition_penalty
    found[seen] = np.where(found[seen] > 0, found[seen] / penalty, found[seen] * penalty)
    for token in set(output):
        found[token] -= params.presence_penalty + params.frequency_penalty * output.count(token)
    for token, bias in params.logit_bias:
        found[token] += bias
    for *before, last in params.bad_words:
        if not before or output[-len(before) :] == before:
            found[last] = -np.inf
    if params.allowed_token_ids:
        ruled_out = set(range(len(found))) - set(params.allowed_token_ids)
        found[sorted(ruled_out)] = -np.inf
    if len(output) < params.min_tokens:
        eos = [] if params.ignore_eos else [tiny_models.EOS]
        found[[*params.stop_token_ids, *eos]] = -np.inf
    return found


def distribution(shaped: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Probability of each token, after temperature and thresholds."""
    scaled = shaped / params.temperature
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    keep = np.ones(len(p), bool)
    ordered = np.sort(p)[::-1]
    if params.top_k >= 1:
        keep &= p >= ordered[min(params.top_k, len(p)) - 1]
    left = np.sort(p[keep])[::-1] / p[keep].sum()
    reaches = min(int(np.searchsorted(left.cumsum(), params.top_p)), len(left) - 1)
    keep &= p >= np.sort(p[keep])[::-1][reaches]
    keep &= p >= params.min_p * p.max()
    p = np.where(keep, p, 0.0)
    return p / p.sum()


def assert_chosen(model: Any, request: Request, got: Got, close: float = CLOSE) -> None:
    """Every token is what the reference chooses behind those before it, up to `close`."""
    assert got.error is None and got.tokens
    params, prompt = request.params, list(request.prompt)
    logits = raw_logits(model, [*prompt, *got.tokens])[len(prompt) - 1 :]
    for at, token in enumerate(got.tokens):
        shaped = shape(logits[at], request, got.tokens[:at])
        if params.temperature == 0:
            assert shaped[token] >= shaped.max() - close, f"{request.id}, token {at}"
            continue
        p = distribution(shaped, params)
        above, noise = p.cumsum()[token], uniform(params.seed, at, params.draw)
        assert p[token] > 0, f"{request.id}: token {at} is over a threshold"
        assert above - p[token] - close <= noise <= above + close, f"{request.id}, token {at}"


def assert_ended(request: Request, got: Got) -> None:
    """It ended at the first stop token, or at its length."""
    stops = {
        *request.params.stop_token_ids,
        *(() if request.params.ignore_eos else (tiny_models.EOS,)),
    }
    ends = [at for at, token in enumerate(got.tokens) if token in stops]
    if ends:
        assert ends == [len(got.tokens) - 1] and got.finish is FinishReason.STOP
        assert len(got.tokens) > request.params.min_tokens
    else:
        assert len(got.tokens) == request.params.max_tokens
        assert got.finish is FinishReason.LENGTH


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def assert_scored(
    model: Any,
    tokens: list[int],
    first: int,
    scores: list[TokenLogprob],
    top: int,
    close: float = CLOSE,
) -> None:
    """scores: of tokens[first:], each behind those before it; of the model's own logits."""
    assert len(scores) == len(tokens) - first
    wanted = log_softmax(raw_logits(model, tokens)[first - 1 : -1])
    for token, score, right in zip(tokens[first:], scores, wanted, strict=True):
        assert abs(score.logprob - right[token]) < close
        larger = [int((right > right[token] + by).sum()) for by in (close, -close)]
        assert larger[0] < score.rank <= max(larger[1], 1)
        assert len(score.top) == top and len({token for token, _ in score.top}) == top
        values = [value for _, value in score.top]
        assert values == sorted(values, reverse=True)
        np.testing.assert_allclose(values, np.sort(right)[::-1][:top], atol=close)
        for other, value in score.top:
            assert abs(value - right[other]) < close


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """How many standard deviations the misfit is over what chance gives (Wilson and Hilferty).

    expected: counts by the reference. Cells of less than 5 are taken together.
    """
    assert counts.sum() > 0 and math.isclose(counts.sum(), expected.sum(), rel_tol=1e-6)
    if counts[expected == 0].any():
        return math.inf
    rare = expected < 5
    cells = [*zip(counts[~rare], expected[~rare], strict=True)]
    if expected[rare].sum() >= 5:
        cells.append((counts[rare].sum(), expected[rare].sum()))
    freedom = len(cells) - 1
    assert freedom >= 1, "nothing is left to chance here"
    misfit = sum((n - e) ** 2 / e for n, e in cells)
    spread = 2 / (9 * freedom)
    return float(((misfit / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))
