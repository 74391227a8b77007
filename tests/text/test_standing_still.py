"""Children that answer frames and stand still, or are killed from outside: not for ever, and
nothing is concluded from it."""

from __future__ import annotations

import os
import signal

import pytest

from anychip.grammar.check import GrammarCheck
from anychip.grammar.errors import NotChecked
from anychip.grammar.vocabulary import Vocabulary
from anychip.request import GrammarSpec
from anychip.text.chat import ChatTemplate
from anychip.text.errors import RendererLost, TemplateError
from anychip.text.render_process import RenderProcess

LONG_S = 120.0
"""For what has to succeed, on any machine."""
USER = [{"role": "user", "content": "hi"}]
CALL = [{"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function",
         "function": {"name": "f", "arguments": "{}"}}]}]  # fmt: skip


@pytest.fixture
def renderer():
    process = RenderProcess(0.5, patience_s=LONG_S)
    yield process
    process.close()


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["short", "longer than a pipe takes"])
def test_a_renderer_that_is_stopped_is_replaced(renderer, size):
    template = ChatTemplate("{{ messages[0].content }}", {}, process=renderer)
    template.check()
    stopped = renderer._child
    os.kill(stopped.pid, signal.SIGSTOP)
    renderer._patience_s = 0.0
    with pytest.raises(RendererLost, match="stood still and was ended; send it again"):
        template.render([{"role": "user", "content": "x" * size}])
    assert stopped.returncode == -signal.SIGKILL
    renderer._patience_s = LONG_S
    assert template.render([{"role": "user", "content": "y" * size}]) == "y" * size


class Killed(RenderProcess):
    """Its child is killed behind each of the next `times` jobs that it is given."""

    times = 0

    def _running(self):
        child = super()._running()
        if self.times:
            self.times -= 1
            os.kill(child.pid, signal.SIGKILL)
        return child


def test_a_killed_renderer_says_nothing_of_the_template():
    text = "{{ messages[0].content is none }} {{ messages[0].tool_calls[0].function.arguments }}"
    process = Killed(0.5, patience_s=LONG_S)
    template = ChatTemplate(text, {}, process=process)
    try:
        for _ in range(2):  # while it is tried how arguments are written, then with the chat
            process.times = 1
            with pytest.raises(RendererLost, match="was killed; send it again"):
                template.render(CALL)
        assert template.render(CALL).startswith("True ")
    finally:
        process.close()


def test_an_end_of_its_own_is_the_templates(renderer):
    template = ChatTemplate("{% for a in range(10**8) %}{% endfor %}", {}, process=renderer)
    with pytest.raises(TemplateError, match=r"longer than 0\.5 s|Range too big"):
        template.render(USER)


def test_a_check_of_a_grammar_that_stands_still_may_be_sent_again():
    pieces = tuple(bytes([byte]) for byte in range(256))
    vocabulary = Vocabulary((*pieces, b""), {"<end>": 256}, frozenset({256}), 257)
    check = GrammarCheck(vocabulary, patience_s=LONG_S)
    try:
        check.check(GrammarSpec("regex", "a+"))
        stopped = check._child
        os.kill(stopped.pid, signal.SIGSTOP)
        check._patience_s = 0.1 - check._limits.compile_s
        with pytest.raises(NotChecked, match="stood still and was ended; send it again"):
            check.check(GrammarSpec("regex", "b+"))
        assert stopped.returncode == -signal.SIGKILL
        check._patience_s = LONG_S
        check.check(GrammarSpec("regex", "b+"))
    finally:
        check.close()
