"""What a grammar lets through before the answer itself: thoughts, where they are read."""

from __future__ import annotations

from anychip.grammar.parts import Part, tag_part, text_part
from anychip.text.answer import harmony
from anychip.text.answer.thinking import THINK, THINK_END

_ANY: Part = {"type": "any_text"}
_SPACE: Part = {"type": "regex", "pattern": "\\s{0,4}"}
_ANALYSIS = f"{harmony.CHANNEL}analysis{harmony.MESSAGE}"
_FINAL = f"{harmony.CHANNEL}final{harmony.MESSAGE}"
_NEXT = f"{harmony.END}{harmony.START}assistant"


def thoughts(reasoning: str, inside: bool | None, *, speaks: bool) -> list[Part]:
    """What may come before the answer itself where reasoning is read; nothing where it is not.

    reasoning, inside: as in `AnswerFormat`. speaks: the answer is said, not a call.
    """
    if reasoning == "gpt-oss":
        analysis = tag_part(_ANALYSIS, _ANY, _NEXT)
        return [{"type": "star", "content": analysis}, *([text_part(_FINAL)] if speaks else [])]
    if not reasoning or inside is False:
        return []
    if inside or reasoning == "deepseek-r1":
        return [_ANY, text_part(THINK_END), _SPACE]
    return [{"type": "optional", "content": tag_part(THINK, _ANY, THINK_END)}, _SPACE]
