from __future__ import annotations

from types import SimpleNamespace

import pytest

from anychip.http.errors import ApiError
from anychip.server.chat_formats import AnswerFormats
from anychip.server.texts import Texts
from anychip.server.thinking import effort_variables, thinking_variables


def serving(template="", reasoning=""):
    texts = Texts(None, None, SimpleNamespace(text=template, close=lambda: None))
    return SimpleNamespace(texts=texts, formats=AnswerFormats(reasoning=reasoning))


def test_what_the_template_reads_is_told_to_it():
    service = serving("{% if enable_thinking %}{{ reasoning_effort | default('low') }}")
    assert effort_variables(service, "high", "f") == {"reasoning_effort": "high"}
    assert effort_variables(service, "none", "f") == {"reasoning_effort": "none"}
    assert thinking_variables(service, True, "f") == {"enable_thinking": True}
    assert thinking_variables(service, False, "f") == {"enable_thinking": False}
    switch = serving("{% if enable_thinking %}", "qwen3")
    assert effort_variables(switch, "none", "f") == {"enable_thinking": False}


def test_nobody_asked_for_is_nothing_told():
    for service in (serving(), serving("{{ enable_thinking }}", "qwen3")):
        assert effort_variables(service, None, "f") == thinking_variables(service, None, "f") == {}


def test_what_the_model_does_anyway_needs_no_variable():
    assert thinking_variables(serving(reasoning="qwen3"), True, "f") == {}
    assert (
        thinking_variables(serving(), False, "f") == effort_variables(serving(), "none", "f") == {}
    )


@pytest.mark.parametrize(
    ("variables", "wish", "service"),
    [
        (effort_variables, "low", serving("{{ my_reasoning_effort }}")),
        (effort_variables, "none", serving(reasoning="qwen3")),
        (thinking_variables, True, serving()),
        (thinking_variables, False, serving(reasoning="qwen3")),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(variables, wish, service):
    with pytest.raises(ApiError, match=r"my\.field: this model's chat template") as caught:
        variables(service, wish, "my.field")
    assert caught.value.body.param == "my.field"
