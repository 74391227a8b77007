"""The formats of tool calls and of reasoning that are known, and which one a template writes."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from anychip.text.answer import bare, harmony, tagged, thinking
from anychip.text.answer.cursor import Cursor, Steps
from anychip.text.answer.events import Sink

Read = Callable[[Cursor, Sink], Steps[None]]


@dataclass(frozen=True)
class CallSyntax:
    """What text a forced call has, for a grammar: `begin`, then for each call `before_name`, the
    tool's name as it is, `after_name`, the arguments as a JSON object, `after_arguments`; between
    two calls `between`, after the last `end`.

    between None: an answer holds one call. Markers may be special tokens of the vocabulary.
    """

    before_name: str
    after_name: str
    after_arguments: str = ""
    begin: str = ""
    between: str | None = None
    end: str = ""


@dataclass(frozen=True)
class ToolFormat:
    """markers: what has to be seen where the vocabulary has a special token for it.

    syntax: how a forced call is written; the reader reads it too.
    """

    read: Read
    syntax: CallSyntax
    markers: tuple[str, ...] = ()
    new_id: Callable[[], str] = lambda: f"call_{secrets.token_hex(12)}"


def _short_id() -> str:
    """Nine letters or digits, which Mistral's templates insist on."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


_JSON_OBJECT = CallSyntax('{"name": "', '", "parameters": ', "}", between="; ")

_DEEPSEEK_MARKERS = (
    tagged.CALLS_BEGIN,
    tagged.CALLS_END,
    tagged.CALL_BEGIN,
    tagged.CALL_END,
    tagged.CALL_SEPARATOR,
)


def _deepseek(before_name: str, after_name: str, after_arguments: str) -> ToolFormat:
    syntax = CallSyntax(
        tagged.CALL_BEGIN + before_name,
        after_name,
        after_arguments + tagged.CALL_END,
        begin=tagged.CALLS_BEGIN,
        between="\n" if after_arguments else "",
        end=tagged.CALLS_END,
    )
    return ToolFormat(tagged.deepseek, syntax, _DEEPSEEK_MARKERS)


TOOL_FORMATS: Mapping[str, ToolFormat] = {
    "hermes": ToolFormat(
        tagged.hermes,
        CallSyntax('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", between="\n"),
        (tagged.HERMES_BEGIN, tagged.HERMES_END),
    ),
    "llama3": ToolFormat(bare.llama3, _JSON_OBJECT, (bare.PYTHON_TAG,)),
    "mistral": ToolFormat(
        tagged.mistral,
        CallSyntax(
            '{"name": "', '", "arguments": ', "}", begin="[TOOL_CALLS] [", between=", ", end="]"
        ),
        (tagged.MISTRAL_BEGIN, tagged.MISTRAL_ID, tagged.MISTRAL_ARGUMENTS),
        _short_id,
    ),
    "deepseekv3": _deepseek(f"function{tagged.CALL_SEPARATOR}", "\n```json\n", "\n```"),
    "deepseekv31": _deepseek("", tagged.CALL_SEPARATOR, ""),
    "pythonic": ToolFormat(bare.pythonic, _JSON_OBJECT, (bare.PYTHON_START, bare.PYTHON_END)),
    "gpt-oss": ToolFormat(
        harmony.harmony,
        CallSyntax(
            f"{harmony.CHANNEL}commentary to=functions.",
            f" {harmony.CONSTRAIN}json{harmony.MESSAGE}",
        ),
        harmony.MARKERS,
    ),
}

REASONING_MARKERS: Mapping[str, tuple[str, ...]] = {
    "deepseek-r1": (thinking.THINK, thinking.THINK_END),
    "qwen3": (thinking.THINK, thinking.THINK_END),
    "gpt-oss": harmony.MARKERS,
}
"""The formats of reasoning, and the markers of each that have to be seen."""


_TAUGHT: Sequence[tuple[str | None, tuple[str, ...]]] = (
    ("gpt-oss", (harmony.CHANNEL, "functions")),
    ("deepseekv3", (tagged.CALLS_BEGIN, "```json")),
    ("deepseekv31", (tagged.CALLS_BEGIN,)),
    ("mistral", (tagged.MISTRAL_BEGIN,)),
    ("pythonic", (bare.PYTHON_START,)),
    ("pythonic", ("[func_name1(",)),
    (None, (tagged.HERMES_BEGIN, "<function=")),  # Hermes' markers around what is not JSON
    (None, (tagged.HERMES_BEGIN, "<arg_key>")),
    ("hermes", (tagged.HERMES_BEGIN,)),
    ("llama3", (bare.PYTHON_TAG,)),
    ("llama3", ("<|start_header_id|>", '"parameters": ')),
)
"""Formats by texts that a template of theirs holds, the first that fits."""


def tool_format_of(template: str | None) -> str | None:
    """The name of the format that a chat template teaches; None where it is none of ours."""
    text = template or ""
    fits = (name for name, texts in _TAUGHT if all(one in text for one in texts))
    return next(fits, None)


def reasoning_format_of(template: str | None) -> str | None:
    """The name of the format of reasoning that a chat template knows; None for none of ours."""
    text = template or ""
    if harmony.CHANNEL in text and "analysis" in text:
        return "gpt-oss"
    if thinking.THINK_END not in text and thinking.THINK not in text:
        return None
    return "deepseek-r1" if "<｜Assistant｜>" in text else "qwen3"
