"""Calls out of a trace: prompts as they were, or made up so that the same beginnings are shared."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from .calls import Call, LoadError
from .scaling import Scaling
from .traces import Trace, Traced

_ENDINGS = ("stop", "stop_token_ids", "stop_regex", "min_tokens", "ignore_eos", "no_stop_trim")
_MANY = ("n", "best_of")
"""A record has one line a sequence: what asks for several would be more than there was."""
_GRAMMARS = ("regex", "ebnf", "json_schema", "structural_tag")
_WORDS = (
    "time year day man thing way life part world house school state night room book word line city"
    " water road door hand book food land side work home game fact story month right study lot"
    " music point river field paper light stone tree bird ship wind fire snow rain hill lake sand"
)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace becomes calls.

    vocab: ids below it are tokens; None sends made-up prompts as text, about a token a word.
    reserved: ids that no made-up prompt has. text: send texts also where ids are known.
    free_length: answers end where the model ends them; else they get the trace's length.
    exact: the server is to answer with the recorded tokens. seed: of made-up prompts.
    """

    vocab: int | None = None
    reserved: Collection[int] = ()
    text: bool = False
    free_length: bool = False
    exact: bool = False
    scaling: Scaling = Scaling()
    seed: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """calls: by arrival. notes: what was made up, changed or left out."""

    calls: tuple[Call, ...]
    notes: tuple[str, ...] = ()


def calls_of(trace: Trace, shape: Shape) -> Asked:
    """What is asked, a call for each request of the trace. LoadError where that cannot be."""
    requests, notes = trace.requests, tuple[str, ...]()
    if shape.exact:
        requests = _exact(trace, shape)
        lacking = len(trace.requests) - len(requests)
        notes = (f"left out, since they got no tokens: {lacking}",) if lacking else ()
    maker = _Maker(trace, shape)
    calls = tuple(maker.call(number, one) for number, one in enumerate(requests))
    return Asked(calls=calls, notes=(*maker.notes(), *notes))


def _exact(trace: Trace, shape: Shape) -> tuple[Traced, ...]:
    """The requests whose answers are known by their tokens. LoadError where there are none."""
    known = tuple(one for one in trace.requests if one.prompt and one.response)
    if not known:
        raise LoadError(
            "--exact: the trace has no recorded tokens; record with --record-privacy tokens or text"
        )
    if shape.scaling != Scaling() or shape.free_length or shape.text:
        raise LoadError(
            "--exact: the recorded tokens have their lengths; leave out scaling, --free-length and"
            " --prompts text"
        )
    return known


class _Maker:
    """Makes calls, and remembers what it did to them."""

    def __init__(self, trace: Trace, shape: Shape) -> None:
        self._trace, self._shape = trace, shape
        self._blocks: dict[str | int, tuple[int, ...]] = {}
        self._words = _WORDS.split()
        self._made_up = self._dropped = self._several = 0

    def call(self, number: int, one: Traced) -> Call:
        """The call of one request."""
        shape = self._shape
        length = shape.scaling.output_of(one.output_tokens)
        if shape.free_length and one.max_tokens is not None:
            length = shape.scaling.output_of(one.max_tokens)
        if shape.exact and one.response is not None:
            length = len(one.response)
        return Call(
            id=str(number + 1),
            at_s=one.at_s,
            prompt=self._prompt(number, one),
            messages=() if one.prompt is not None and not shape.text else one.messages,
            max_tokens=length,
            params=self._params(one),
            expected=one.response,
        )

    def notes(self) -> tuple[str, ...]:
        """What was done to the calls."""
        told = [f"scaling: {self._shape.scaling.told}"]
        if self._made_up:
            how = "tokens" if self._shape.vocab is not None else "words, about a token each"
            told.append(f"{self._made_up} prompts are made up of random {how}")
        if self._several:
            told.append(f"{self._several} requests wanted several answers; one of each is asked")
        if self._dropped:
            told.append(f"{self._dropped} requests were held to a grammar that cannot be asked for")
        return tuple(told)

    def _prompt(self, number: int, one: Traced) -> tuple[int, ...] | str:
        known, scaling = one.prompt, self._shape.scaling
        if known is not None and not self._shape.text:
            length = scaling.input_of(msgspec.structs.replace(one, blocks=()), self._trace)
            return known[: max(1, min(len(known), length))]
        if one.text is not None or one.messages:
            if scaling.changes_prompts:
                raise LoadError(
                    "the trace holds texts, whose tokens nobody counted, so prompts cannot be"
                    " scaled; leave out --scale-input and --max-input"
                )
            return one.text or ""
        if known is not None:
            raise LoadError("--prompts text: the record holds ids alone; use --prompts ids")
        self._made_up += 1
        return self._make(number, one)

    def _make(self, number: int, one: Traced) -> tuple[int, ...] | str:
        scaling = self._shape.scaling
        length = scaling.input_of(one, self._trace)
        size = scaling.block(self._trace) if one.blocks else length
        names: Sequence[str | int] = one.blocks or (f"alone {number}",)
        ids = tuple(token for name in names for token in self._block(name, size))[:length]
        if self._shape.vocab is not None:
            return ids
        return " ".join(self._words[token % len(self._words)] for token in ids)

    def _block(self, name: str | int, size: int) -> tuple[int, ...]:
        """Random tokens, the same for the same name; kept only where others may have it too."""
        found = self._blocks.get(name)
        if found is None:
            rng = random.Random(f"{self._shape.seed} {name}")
            vocab, reserved = self._shape.vocab or 1 << 16, self._shape.reserved
            drawn = rng.choices(range(vocab), k=2 * size + 64)
            found = tuple(token for token in drawn if token not in reserved)[:size]
            if self._trace.block:
                self._blocks[name] = found
        return found

    def _params(self, one: Traced) -> dict[str, Any]:
        shape = self._shape
        params = {name: value for name, value in one.params.items() if name not in _MANY}
        self._several += len(params) < len(one.params)
        if self._trace.kind != "record":
            params["temperature"] = 0
        params |= self._grammar(one)
        if one.space:
            params["cache_salt"] = one.space
        if shape.free_length:
            return params
        params = {name: value for name, value in params.items() if name not in _ENDINGS}
        if shape.exact:
            unfit = (*_GRAMMARS, "choice", "response_format")
            params = {name: value for name, value in params.items() if name not in unfit}
            return {**params, "emit_token_ids": one.response}
        return params if one.grammar else {**params, "ignore_eos": True}

    def _grammar(self, one: Traced) -> dict[str, Any]:
        if one.grammar is None:
            return {}
        kind, text = one.grammar["kind"], one.grammar.get("text")
        if kind == "json_object":
            return {"response_format": {"type": "json_object"}}
        if text is not None and kind == "choice":
            return {"choice": msgspec.json.decode(text)}
        if text is not None and kind in _GRAMMARS:
            return {kind: text}
        self._dropped += not self._shape.exact
        return {}


def best_hit_rate(calls: Sequence[Call], page_size: int) -> float | None:
    """Share of the prompt tokens that an unbounded cache of whole pages could find, each prompt
    looked for among those sent before it. None where prompts are no ids."""
    seen: set[int] = set()
    found = total = 0
    for call in calls:
        if not isinstance(call.prompt, tuple):
            return None
        total += len(call.prompt)
        chain, known = hash(call.params.get("cache_salt")), True
        # The last token is always computed.
        for start in range(0, (len(call.prompt) - 1) // page_size * page_size, page_size):
            chain = hash((chain, call.prompt[start : start + page_size]))
            known = known and chain in seen
            found += page_size * known
            seen.add(chain)
    return found / total if total else None
