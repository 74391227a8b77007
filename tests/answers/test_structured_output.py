"""Answers under grammars, whole: compiled, masked, forced, batched, retracted, refused."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

import tiny_models
from answers.equality import config
from anychip.engine.grammar_queue import GrammarQueue
from anychip.engine.offline import OfflineEngine, run_requests
from anychip.grammar.backend import backend_complaint
from anychip.request import FinishReason, GrammarSpec, Request, SamplingParams

NO_XGRAMMAR = backend_complaint("xgrammar")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["red fox", "grey wolf"]},
        "count": {"type": "integer", "minimum": 10, "maximum": 99},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "kind", "count", "tags"],
    "additionalProperties": False,
}
OBJECT = GrammarSpec("json_schema", json.dumps(SCHEMA), any_whitespace=False)
WORDS = GrammarSpec("regex", "(ab|cd){3,5}!")
CHOICE = GrammarSpec("choice", '["the first of them", "the second", "none"]')
PROMPT = [5, 60, 77, 101, 33, 8, 90]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.make_hf_folder(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module", params=["cpu", "fake"])
def offline(request, folder):
    with OfflineEngine(config(folder, backend=request.param, dtype="float32")) as engine:
        yield engine


class Asker:
    count = 0

    def __call__(self, grammar, **fields) -> Request:
        Asker.count += 1
        fields = {"max_tokens": 120, "temperature": 0.0, "grammar": grammar, **fields}
        params = SamplingParams(**fields)
        return Request(id=f"s{Asker.count}", prompt=tuple(PROMPT), params=params)


ask = Asker()


def texts(offline, *requests):
    found = run_requests(offline.engine, requests)
    assert [one.error for one in found] == [None] * len(requests)
    return [offline.tokenizer.decode(one.token_ids) for one in found]


def check(text: str, spec: GrammarSpec) -> None:
    if spec is OBJECT:
        jsonschema.validate(json.loads(text), SCHEMA)
    elif spec is WORDS:
        assert re.fullmatch(spec.text, text)
    else:
        assert text in json.loads(spec.text)


@pytest.mark.parametrize("spec", [OBJECT, WORDS, CHOICE], ids=lambda spec: spec.kind)
def test_every_answer_follows_its_grammar(offline, spec):
    hot = {"temperature": 1.5}
    for text in texts(offline, ask(spec), *(ask(spec, **hot, seed=n) for n in range(8))):
        check(text, spec)


def test_all_share_a_batch_and_say_what_they_say_alone(offline):
    asked = [(spec, seed) for spec in (OBJECT, WORDS, CHOICE, None) for seed in (1, 2)]

    def made():
        return [ask(spec, temperature=1.0, seed=seed, max_tokens=40) for spec, seed in asked]

    alone = [texts(offline, one)[0] for one in made()]
    assert texts(offline, *made()) == alone


def test_forced_tokens_save_steps_and_change_nothing_that_is_forced(offline):
    steps = []

    def count(**fields):
        before = offline.engine.stats().steps
        (text,) = texts(offline, ask(CHOICE, **fields))
        steps.append(offline.engine.stats().steps - before)
        return text

    jumped, sampled = count(), count(logprobs=0)  # with logprobs every token is sampled
    assert jumped == sampled and steps[0] < steps[1]


def test_logprobs_are_the_models_own_under_a_grammar(offline):
    (found,) = run_requests(offline.engine, [ask(CHOICE, logprobs=1)])
    assert found.error is None and found.finish is FinishReason.STOP


@pytest.mark.parametrize("overlap", [False, True])
def test_a_retraction_goes_on_in_the_middle_of_a_document(folder, offline, overlap):
    hot = [ask(OBJECT, temperature=1.0, seed=n) for n in range(3)]
    wanted = texts(offline, *hot)
    forced = config(folder, backend="cpu", dtype="float32", force_retract_every=5)
    with OfflineEngine(forced, overlap=overlap) as other:
        again = [ask(OBJECT, temperature=1.0, seed=n) for n in range(3)]
        assert texts(other, *again) == wanted
        assert other.engine.stats().retractions >= 2


def test_overlap_without_jumps(folder, offline):
    specs = [OBJECT, WORDS, CHOICE, None]
    wanted = texts(offline, *(ask(s, temperature=1.0, seed=4, max_tokens=60) for s in specs))
    plain = config(folder, backend="cpu", dtype="float32", disable_jump_forward=True)
    with OfflineEngine(plain, overlap=True) as other:
        again = [ask(s, temperature=1.0, seed=4, max_tokens=60, logprobs=0) for s in specs]
        found = texts(other, *again)
    assert found[3] == wanted[3]
    for text, spec in zip(found[:3], specs[:3], strict=True):
        check(text, spec)


def test_an_answer_that_is_cut_is_a_beginning(offline):
    (found,) = run_requests(offline.engine, [ask(OBJECT, max_tokens=9)])
    assert found.finish is FinishReason.LENGTH and len(found.token_ids) == 9


def test_a_complete_document_ends_though_more_tokens_were_wanted(offline):
    (found,) = run_requests(offline.engine, [ask(CHOICE, min_tokens=100)])
    assert found.finish is FinishReason.STOP and len(found.token_ids) < 30


def test_nothing_in_common_ends_that_request_alone(offline):
    nothing = ask(GrammarSpec("regex", "[0-9]+"), allowed_token_ids=(300, 301))
    good, bad = run_requests(offline.engine, [ask(CHOICE), nothing])
    assert good.finish is FinishReason.STOP
    assert bad.finish is FinishReason.ERROR and "leave none" in bad.error


def test_a_grammar_that_does_not_compile_ends_that_request_alone(offline):
    bad = ask(GrammarSpec("regex", "(unclosed"))
    found = run_requests(offline.engine, [bad, ask(CHOICE)])
    assert found[0].finish is FinishReason.ERROR and "grammar" in found[0].error
    assert found[1].finish is FinishReason.STOP
    assert offline.engine.scheduler.check() == []


def test_a_request_leaves_while_its_grammar_is_compiled(offline):
    engine, request = offline.engine, ask(GrammarSpec("regex", "x{5}"))
    engine.submit(request)
    assert engine.abort(request.id) and not engine.abort(request.id)
    assert [one.finish for one in engine.step()] == [FinishReason.ABORT]
    assert not engine.has_work()


def test_an_engine_without_grammars_refuses_by_name(folder):
    plain = config(folder, backend="cpu", grammar_backend="none")
    refused = pytest.raises(ValueError, match="this engine knows none")
    with OfflineEngine(plain) as other, refused:
        other.engine.submit(ask(CHOICE))


@pytest.mark.skipif(bool(NO_XGRAMMAR), reason=NO_XGRAMMAR or "")
def test_the_engine_follows_xgrammar_too(folder):
    chosen = config(folder, backend="cpu", dtype="float32", grammar_backend="xgrammar")
    with OfflineEngine(chosen) as other:
        for spec in (OBJECT, WORDS, CHOICE):
            hot = [ask(spec, temperature=1.5, seed=n) for n in range(4)]
            for text in texts(other, ask(spec), *hot):
                check(text, spec)
        before = other.engine.stats().steps
        jumped = texts(other, ask(CHOICE))
        steps = other.engine.stats().steps - before
        assert texts(other, ask(CHOICE, logprobs=0)) == jumped
        assert steps < other.engine.stats().steps - before - steps  # forced tokens saved some


def test_waiting_for_a_compile_does_not_spin(offline, monkeypatch):
    """With nothing else to do each turn waits for the compile, up to a moment."""
    waits = []

    def wait(queue):
        waits.append(len(queue))
        return plain(queue)

    plain = GrammarQueue.wait
    monkeypatch.setattr(GrammarQueue, "wait", wait)
    request, turns = ask(GrammarSpec("regex", "y{5}z"), max_tokens=30), 0
    offline.engine.submit(request)
    while not offline.engine.scheduler.has_work() and turns < 1000:
        offline.engine.step()
        turns += 1
    assert waits == [1] * turns
    offline.engine.abort(request.id)
    while offline.engine.has_work():
        offline.engine.step()
