"""An engine that says what a chat asks for: the last token of the prompt, a digit, chooses a text
of ANSWERS, which is said token by token."""

from __future__ import annotations

import msgspec

import scripted_engine
from anychip.engine.engine import Engine
from anychip.plan import StepPlan, StepResult
from scripted_engine import EOS, ScriptedRunner

THINK = 258
"""The token of `<think>`; the one after it is that of `</think>`. Both are special."""

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 🌤"}}\n</tool_call>'
TEMPLATE = """{#- <think> -#}
{%- if tools %}{{ tools | tojson }} answer in <tool_call>{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments }}</tool_call>
{%- endfor %}<|im_end|>{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{{ said }}{% endif %}"""
ANSWERS = [
    "Hello.",
    f"Let me see.\n{CALL}",
    f"{CALL}\n{CALL.replace('Zürich', 'Genf')}",
    "<think>\nhm, 1 < 2\n</think>\n\nYes.",
    f"<think>so</think>{CALL}",
    '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
    'It is {"name": "get_weather"}',
]


def tokens_of(text: str) -> list[int]:
    """Bytes, and the special tokens."""
    for place, marker in enumerate(("<think>", "</think>")):
        if marker in text:
            before, _, after = text.partition(marker)
            return [*tokens_of(before), THINK + place, *tokens_of(after)]
    return list(text.encode())


class SayingRunner(ScriptedRunner):
    """Keeps for each slot where its next token lies, and what is left to say."""

    def __init__(self) -> None:
        super().__init__(0.0, polite=True)
        self._left: dict[int, tuple[int, list[int]]] = {}

    def run(self, plan: StepPlan) -> StepResult:
        tokens = [self._next(row) if row.sample else -1 for row in plan.rows]
        return msgspec.structs.replace(super().run(plan), tokens=tuple(tokens))

    def _next(self, row) -> int:
        end = row.start + len(row.tokens)
        place, left = self._left.get(row.slot, (-1, []))
        if place != row.start or not left:
            left = [*tokens_of(ANSWERS[row.tokens[-1] - ord("0")]), EOS]
        self._left[row.slot] = (end, left[1:])
        return left[0]


def build(config, report):
    """The builder that tests name."""
    engine, info = scripted_engine.build(config, report)
    return Engine(engine.scheduler, SayingRunner()), info
