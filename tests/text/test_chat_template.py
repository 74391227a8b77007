from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from anychip.text.chat import ChatTemplate
from anychip.text.errors import TemplateError, TextError

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "café <b>"}}


@pytest.fixture
def make():
    made = []

    def build(text, **options):
        made.append(ChatTemplate(text, **options))
        return made[-1]

    yield build
    for template in made:
        template.close()


def render(make, text, messages=USER, **kwargs):
    return make(text).render(messages, **kwargs)


def test_equals_transformers_on_the_demo_template(make, demo):
    from transformers.utils.chat_template_utils import render_jinja_template

    chats = [
        USER,
        [{"role": "system", "content": "Be brief."}, *USER],
        [*USER, {"role": "assistant", "content": "Hé 🤖"}, {"role": "user", "content": "more"}],
    ]
    template = make(demo.chat_template, special_tokens=demo.special_tokens)
    for chat in chats:
        for generate in (True, False):
            theirs, _ = render_jinja_template(
                [chat],
                chat_template=demo.chat_template,
                add_generation_prompt=generate,
                **demo.special_tokens,
            )
            assert template.render(chat, add_generation_prompt=generate) == theirs[0]


FEATURES = {
    "  {% if true %}\n  x\n  {% endif %}\ny": "  x\ny",
    "{{ bos_token }}{{ eos_token }}": "<s>",
    "{{ tools | tojson }}": '[{"type": "function", "function": '
    '{"name": "f", "description": "café <b>"}}]',
    "{% for i in [1,2,3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}": "1",
    "{% generation %}a{% endgeneration %}b": "ab",
    "{{ strftime_now('%Y') | length }}": "4",
    "{{ enable_thinking }}": "False",
    "{{ missing }}{{ missing is defined }}": "False",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}": "1",
}


@pytest.mark.parametrize("text", FEATURES)
def test_what_templates_rely_on(make, text):
    template = make(text, special_tokens={"bos_token": "<s>"})
    assert template.render(USER, tools=[TOOL], enable_thinking=False) == FEATURES[text]


def test_text_parts_are_joined(make):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts, "name": "n"}]
    assert render(make, "{{ messages[0].content }}{{ messages[0].name }}", messages) == "abn"


def test_tool_call_turn_may_have_no_content(make):
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [TOOL]}]
    assert render(make, "{{ messages[1].content is none }}", messages) == "True"


WRONG = [
    ([], "at least one message"),
    (["hi"], r"messages\[0\] must be an object, not a string"),
    ([*USER, {"content": "x"}], r"messages\[1\].role must be a string, not null"),
    ([{"role": "user"}], r"messages\[0\].content must be a string or a list"),
    ([{"role": "user", "content": 5}], "not a number"),
    (
        [{"role": "user", "content": [{"type": "image_url"}]}],
        r"content\[0\] is of type 'image_url'",
    ),
    ([{"role": "user", "content": ["x"]}], r"content\[0\] must be an object, not a string"),
    ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\].text must be a string"),
    ([{"role": "user", "content": "a\udc00"}], r"messages\[0\].content .* U\+DC00 at character 1"),
    ([{"role": "user", "content": "a", "name": "\udc00"}], "cannot be given to a chat template"),
    ([{"role": "user", "content": "a", "name": 1 << 80}], "cannot be given to a chat template"),
]


@pytest.mark.parametrize(("messages", "message"), WRONG)
def test_wrong_messages_are_named(make, messages, message):
    with pytest.raises(TextError, match=message):
        render(make, "x", messages)


REFUSED = {
    "{{ raise_exception('Roles must alternate') }}": "^Roles must alternate$",
    "{{ messages[0].a.b }}": "has no attribute 'a'",
    "{{ 1 + 'x' }}": "failed: TypeError",
    "{% if %}": "broken: line 1",
    "{{ ''.__class__.__mro__ }}": "unsafe",
    "{% set x = messages.append(1) %}": "not safely callable|unsafe",
    "{% include '/etc/passwd' %}": "failed|no loader",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "RecursionError",
    "{{ range(10 ** 9) }}": "Range too big",
    "{{ 'x' * (17 * 1024 * 1024) }}": "17825792 characters; the limit is 16777216",
    "{{ 'a' * 10 ** 11 }}": "more than 1024 MiB",
    "{{ '\\ud800' }}": "surrogates not allowed",
}


@pytest.mark.parametrize("text", REFUSED)
def test_template_s_complaint_is_the_error(make, text):
    with pytest.raises(TemplateError, match=REFUSED[text]):
        render(make, text)


ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
    "{{ n.a }}",
    "{{ '%0999999999d' % messages | length }}",
]


@pytest.mark.parametrize("text", ENDLESS)
def test_endless_template_is_stopped_and_the_next_chat_works(make, text):
    template = make("{% if messages[0].content == 'bomb' %}" + text + "{% endif %}ok", limit_s=1.0)
    with pytest.raises(TemplateError, match=r"longer than 1 s|more than 1024 MiB"):
        template.render([{"role": "user", "content": "bomb"}])
    template.check()
    assert template.render(USER) == "ok"


def test_time_between_chats_does_not_count(make):
    template = make("ok", limit_s=0.5)
    assert template.render(USER) == "ok"
    time.sleep(0.7)
    pid = template._process._child.pid
    assert template.render(USER) == "ok" and template._process._child.pid == pid


def test_renderer_that_was_killed_is_replaced(make):
    template = make("ok")
    template.check()
    os.kill(template._process._child.pid, 9)
    template._process._child.wait()
    assert template.render(USER) == "ok"


def test_close_leaves_no_process_and_may_be_repeated(make):
    template = make("ok")
    template.check()
    child = template._process._child
    template.close()
    template.close()
    assert child.returncode is not None


def test_check_finds_a_broken_template_before_any_request(make):
    with pytest.raises(TemplateError, match="line 2"):
        make("a\n{% endfor %}").check()
    make(None).check()


def test_no_template_names_the_ways_out(make):
    with pytest.raises(TemplateError, match=r"/v1/completions.*--chat-template"):
        render(make, None)


def test_variable_named_messages_is_refused(make):
    with pytest.raises(TemplateError, match="'messages' is set by the server"):
        make("x").render(USER, **{"messages": []})


def test_threads_share_one_renderer(make):
    template = make("{{ messages[0].content }}")
    texts = [str(index) * 1000 for index in range(40)]
    with ThreadPoolExecutor(8) as pool:
        chats = [[{"role": "user", "content": text}] for text in texts]
        assert list(pool.map(template.render, chats)) == texts


NULL_FAILS = "{% for m in messages %}{{ m.role + ': ' + m.content }}\n{% endfor %}"
NULL_WANTED = "{% for m in messages %}{{ 'none' if m.content is none else m.content }};{% endfor %}"


@pytest.mark.parametrize(
    ("template", "text"), [(NULL_FAILS, "user: hi\nassistant: \n"), (NULL_WANTED, "hi;none;")]
)
def test_calls_alone_have_no_content_or_an_empty_one_as_the_template_can(template, text):
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    chat = ChatTemplate(template)
    try:
        for _ in range(2):
            assert chat.render([{"role": "user", "content": "hi"}, said]) == text
    finally:
        chat.close()


def test_a_template_that_fails_either_way_tells_its_own_complaint():
    chat = ChatTemplate("{{ raise_exception('no calls here') }}")
    try:
        with pytest.raises(TemplateError, match="no calls here"):
            chat.render([{"role": "assistant", "content": None, "tool_calls": []}])
    finally:
        chat.close()
