"""Turns of a chat beyond question and answer: continued messages, tool calls and their results."""

from __future__ import annotations

import json

import pytest

from anychip.text.chat import ChatTemplate
from anychip.text.errors import TemplateError

USER = {"role": "user", "content": "hi"}

PLAIN = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TRIMMED = PLAIN.replace("m.content }}", "m.content | trim }}")
OBJECTS = (
    "{% for m in messages %}{% for c in m.tool_calls %}<tool_call>"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>"
    "{% endfor %}{{ m.content or '' }}|{% endfor %}"
)
TEXTS = OBJECTS.replace("c.function.arguments} |", "0} |").replace(
    "</tool", "{{ '' + c.function.arguments }}</tool"
)
IS_TEXT = "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
EITHER = OBJECTS.replace("{{ {'name'", IS_TEXT + "{{ {'name'")
EITHER = EITHER.replace("tojson }}", "tojson }}{% endif %}")
NO_TOOLS = "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}{{ messages | length }}"


@pytest.fixture
def make():
    made = []

    def build(text):
        made.append(ChatTemplate(text))
        return made[-1]

    yield build
    for template in made:
        template.close()


def answer(content, **more):
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize("template", [PLAIN, TRIMMED])
@pytest.mark.parametrize("content", ["The answer", "ends with space ", " both \n", "hi"])
def test_a_continued_message_is_cut_as_transformers_cuts_it(make, template, content):
    from transformers.utils.chat_template_utils import render_jinja_template

    chat = [USER, answer(content)]
    theirs, _ = render_jinja_template([chat], chat_template=template, continue_final_message=True)
    ours = make(template).render(chat, continue_final_message=True)
    assert ours == theirs[0] and not ours.endswith("<|end|>\n")


def test_a_continued_message_may_come_in_parts_and_is_not_changed(make):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = [USER, answer(parts)]
    prompt = make(PLAIN).render(chat, continue_final_message=True, add_generation_prompt=False)
    assert prompt == "<|user|>hi<|end|>\n<|assistant|>ab"
    assert chat[1]["content"] is parts


@pytest.mark.parametrize("generate", [True, False, None])
def test_the_assistants_turn_is_begun_unless_it_is_not_wanted(make, generate):
    prompt = make(PLAIN).render([USER], add_generation_prompt=generate)
    assert prompt.endswith("<|assistant|>") == (generate is not False)


CANNOT = [
    ([USER], PLAIN, "role 'assistant'"),
    ([USER, answer(None)], PLAIN, "role 'assistant'"),
    ([USER, answer("")], PLAIN, "role 'assistant'"),
    ([USER, answer("x", tool_calls=[{"function": {"name": "f"}}])], PLAIN, "without tool calls"),
    ([USER, answer("secret")], "{{ messages[0].content }}", "does not show the last message"),
]


@pytest.mark.parametrize(("chat", "template", "message"), CANNOT)
def test_what_cannot_be_continued_is_refused(make, chat, template, message):
    with pytest.raises(TemplateError, match=message):
        make(template).render(chat, continue_final_message=True)


def test_a_prompt_cannot_end_in_two_ways(make):
    with pytest.raises(TemplateError, match="exclude each other"):
        make(PLAIN).render([USER], continue_final_message=True, add_generation_prompt=True)


def called(arguments):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "1", "content": "18 °C"}
    return [USER, answer(None, tool_calls=[call]), result]


SPELLED = '{"city":  "é"}'
OBJECT = '{"city": "é"}'


@pytest.mark.parametrize(
    ("template", "given", "shown"),
    [
        (OBJECTS, SPELLED, '{"name": "f", "arguments": {"city": "é"}}'),
        (OBJECTS, json.loads(SPELLED), '{"name": "f", "arguments": {"city": "é"}}'),
        (OBJECTS, "", '{"name": "f", "arguments": {}}'),
        (OBJECTS, None, '{"name": "f", "arguments": {}}'),
        (TEXTS, SPELLED, '{"name": "f", "arguments": 0}' + SPELLED),
        (TEXTS, json.loads(SPELLED), '{"name": "f", "arguments": 0}' + OBJECT),
        (EITHER, SPELLED, SPELLED),
    ],
)
def test_arguments_reach_a_template_in_the_form_that_it_writes(make, template, given, shown):
    chat = called(given)
    assert make(template).render(chat) == f"hi|<tool_call>{shown}</tool_call>|18 °C|"
    assert chat[1]["tool_calls"][0]["function"]["arguments"] == given


def test_broken_arguments_are_refused_only_where_an_object_is_needed(make):
    assert '"a": tru' in make(TEXTS).render(called('{"a": tru'))
    with pytest.raises(TemplateError, match=r"messages\[1\]\.tool_calls\[0\].*not valid JSON"):
        make(OBJECTS).render(called('{"a": tru'))
    with pytest.raises(TemplateError, match=r"arguments must be a JSON object, not a list"):
        make(OBJECTS).render(called("[1]"))


def test_a_template_that_refuses_tools_still_renders_the_rest(make):
    assert make(NO_TOOLS).render(called("{}")) == "3"


WRONG = [
    ({"role": "user", "content": "x", "tool_calls": [{}]}, "role 'user' calls no tools"),
    (answer("x", tool_calls={}), "tool_calls must be a list, not an object"),
    (answer("x", tool_calls=[5]), r"tool_calls\[0\].function.name must be a string"),
    (answer("x", tool_calls=[{"function": {"name": 5}}]), r"function.name must be a string"),
    ({"role": "tool", "content": None}, r"messages\[0\].content must be a string"),
]


@pytest.mark.parametrize(("message", "error"), WRONG)
def test_wrong_calls_are_named(make, message, error):
    with pytest.raises(TemplateError, match=error):
        make(PLAIN).render([message])


def test_no_calls_are_as_if_the_field_were_not_there(make):
    template = make("{{ 'tool_calls' in messages[0] }}")
    assert template.render([answer("x", tool_calls=None)]) == "False"
