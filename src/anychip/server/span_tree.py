"""The spans of one call, from what the server and the engine wrote down. No tracing library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anychip.http.call_record import CallRecord, Recorded
from anychip.http.span_node import (
    Attribute,
    Attributes,
    SpanEvent,
    SpanNode,
    call_attributes,
    without_none,
)
from anychip.request import Doing, Mark, Request

_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/generate": "text_completion",
}


def server_attributes(record: CallRecord, route: str | None) -> Attributes:
    """Of the call's own span, at its end."""
    found = call_attributes(record, route)
    generation = record.generation
    if generation is not None:
        found |= without_none(_generation_attributes(record, generation))
    return found


def _generation_attributes(
    record: CallRecord, generation: Recorded
) -> Mapping[str, Attribute | None]:
    usage, params = generation.usage(), generation.requests[0].params
    first = generation.first_token
    return {
        "gen_ai.operation.name": _OPERATIONS.get(record.path),
        "gen_ai.provider.name": "anychip",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": generation.rid,
        "gen_ai.request.stream": record.stream,
        "gen_ai.request.choice.count": len(generation.requests),
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.top_k": params.top_k if params.top_k > 0 else None,
        "gen_ai.response.finish_reasons": tuple(str(one) for one in generation.finishes if one),
        "gen_ai.response.time_to_first_chunk": first and first - record.started,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }


def children_of(record: CallRecord) -> list[SpanNode]:
    """The spans within the call's: what the server did, then each sequence."""
    found = [
        SpanNode(stage.name, stage.begin, stage.end, error=stage.error) for stage in record.stages
    ]
    generation = record.generation
    if generation is None or not generation.submitted:
        return found
    ended = generation.ended or record.ended or generation.started
    for index, (request, finish) in enumerate(
        zip(generation.requests, generation.finishes, strict=True)
    ):
        marks = record.timelines.get(request.id, ())
        node = _sequence(request, marks, generation.started, ended)
        node.attributes |= without_none(
            {"anychip.choice": index, "anychip.finish_reason": finish or "cut short"}
        )
        found.append(node)
    return found


def _sequence(request: Request, marks: Sequence[Mark], begun: float, ended: float) -> SpanNode:
    """One sequence: waiting, prefill and decoding, again after each retraction."""
    node = SpanNode("sequence", begun, max([ended, *(mark.end for mark in marks)]))
    node.attributes["anychip.request_id"] = request.id
    node.attributes["anychip.prompt_tokens"] = len(request.prompt)
    retractions = 0
    for mark in marks:
        last = node.children[-1] if node.children else None
        if mark.doing is Doing.RETRACTED:
            retractions += 1
            node.events.append(SpanEvent("retracted", mark.begin, {}))
            if last is not None:
                last.end = max(last.end, mark.begin)
                last.events.append(SpanEvent("retracted", mark.begin, {}))
            continue
        name = mark.doing.value if mark.doing is not Doing.GRAMMAR else "grammar compile"
        if last is None or last.name != name:
            last = _begin(node, name, mark, after_retraction=retractions > 0)
        last.end = mark.end
        if mark.doing in (Doing.PREFILL, Doing.DECODE):
            last.events.append(_step_event(mark))
    node.attributes["anychip.retractions"] = retractions
    return node


def _begin(node: SpanNode, name: str, mark: Mark, *, after_retraction: bool) -> SpanNode:
    """A new child. Decoding begins where the prefill ended: with the first token."""
    last = node.children[-1] if node.children else None
    decodes = mark.doing is Doing.DECODE and last is not None
    child = SpanNode(name, last.end if decodes and last is not None else mark.begin, mark.end)
    if decodes and not after_retraction:
        child.events.append(SpanEvent("first token", child.begin, {}))
    if after_retraction:
        child.attributes["anychip.after_retraction"] = True
    node.children.append(child)
    return child


def _step_event(mark: Mark) -> SpanEvent:
    attributes: Attributes = {
        "anychip.step": mark.step,
        "anychip.step.seconds": mark.end - mark.begin,
        "anychip.tokens": mark.tokens,
        "anychip.step.rows": mark.rows,
        "anychip.step.decoding_rows": mark.decoding,
        "anychip.step.tokens": mark.step_tokens,
    }
    if mark.steps > 1:
        attributes["anychip.steps"] = mark.steps
    return SpanEvent("chunk" if mark.doing is Doing.PREFILL else "step", mark.begin, attributes)
