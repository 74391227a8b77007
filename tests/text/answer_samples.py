"""Answers of models with calls in them, and what they mean."""

from __future__ import annotations

from anychip.text.answer.events import CallArguments, CallStart, Text, Thought
from anychip.text.answer.reader import AnswerFormat, AnswerReader

NAMES = ("f", "get_weather", "function")


def read(form, deltas):
    """Joined events of an answer in deltas; ids count the calls."""
    ids = iter(range(1000))
    reader = AnswerReader(form, lambda: f"id{next(ids)}")
    events = [event for delta in deltas for event in reader.feed(delta)]
    return joined([*events, *reader.flush()])


def joined(events):
    """Events with neighbours of one kind put together: how they are cut does not count."""
    told = []
    for event in events:
        last = told[-1] if told else None
        if isinstance(event, CallArguments) and isinstance(last, CallArguments):
            told[-1] = CallArguments(event.index, last.delta + event.delta)
        elif type(event) is type(last) and not isinstance(event, CallStart):
            told[-1] = type(event)(last.text + event.text)
        else:
            told.append(event)
    return told


def short(events):
    """Events in few words: calls as pairs, texts as strings, thoughts in a list."""
    told = []
    for event in events:
        if isinstance(event, CallStart):
            assert event.id == f"id{event.index}"
            told.append((event.name, ""))
        elif isinstance(event, CallArguments):
            told[-1] = (told[-1][0], event.delta)
        else:
            told.append(event.text if isinstance(event, Text) else [event.text])
            assert event.text and isinstance(event, Text | Thought)
    return told


def tools(name, reasoning="", **options):
    return AnswerFormat(tools=name, names=NAMES, reasoning=reasoning, **options)


_D = '{"name": "f", "arguments": {"a": "}{\\"<"}}'
_DS = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
_DE = "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
_V3 = 'function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```'

CALLS = {
    "hermes": {
        f"Sure.\n<tool_call>\n{_D}\n</tool_call>": ["Sure.", ("f", '{"a": "}{\\"<"}')],
        f"<tool_call>{_D}</tool_call>\n<tool_call>{_D}</tool_call> ok": [
            ("f", '{"a": "}{\\"<"}'),
            ("f", '{"a": "}{\\"<"}'),
            "ok",
        ],
        '<tool_call>{"name": "f"}</tool_call>': [("f", "{}")],
        '<tool_call>{"name": "f", "arguments": null}</tool_call>': [("f", "{}")],
        '<tool_call>{"arguments": {"b": [1, {}]}, "name": "f"}</tool_call>': [
            ("f", '{"b": [1, {}]}')
        ],
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>': [("f", '{"a": 1}')],
        '<tool_call>{"name":"f","x":[1],"arguments":{},"id":"7"}</tool_call>': [("f", "{}")],
        '<tool_call>{"name": "f", "arguments": {"a": 1}} \n {"name": "f"}': [
            ("f", '{"a": 1}'),
            ("f", "{}"),
        ],
        '<tool_call>{"name": "f", "arguments": {"a": 1': [("f", '{"a": 1')],
        '<tool_call>{"name": "f", "arguments": {"a": tru</tool_call>!': [("f", '{"a": tru'), "!"],
        '<tool_call>{"name": "f", "arguments": {}, oops</tool_call>': [
            ("f", "{}"),
            ", oops</tool_call>",
        ],
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>': [
            '<tool_call>{"name": "g", "arguments": {}}</tool_call>'
        ],
        "a <tool_call> b": ["a <tool_call> b"],
        "<tool_call>{'name': 'f'}": ["<tool_call>{'name': 'f'}"],
        '<tool_call>{"name": "f", "argu': ['<tool_call>{"name": "f", "argu'],
        '<tool_call>{"name": "f", "arguments": [1]}': [
            '<tool_call>{"name": "f", "arguments": [1]}'
        ],
        f"<tool_call>not <tool_call>{_D}</tool_call>": [
            "<tool_call>not",
            ("f", '{"a": "}{\\"<"}'),
        ],
        "<tool_cal": ["<tool_cal"],
        " plain  text \n": [" plain  text \n"],
    },
    "llama3": {
        '{"name": "f", "parameters": {"a": 1}}': [("f", '{"a": 1}')],
        ' \n{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}}': [
            ("f", '{"a": 1}'),
            ("f", "{}"),
        ],
        '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": {}}}': [
            ("f", '{"a": {}}')
        ],
        'I say <|python_tag|> {"name": "f", "arguments": {}} done': ["I say", ("f", "{}"), "done"],
        '{"name": "f", "parameters": {}}; then': [("f", "{}"), "; then"],
        '{"name": "f", "value": 3}': ['{"name": "f", "value": 3}'],
        '{"answer": 42}': ['{"answer": 42}'],
        'x {"name": "f", "parameters": {}}': ['x {"name": "f", "parameters": {}}'],
        '<|python_tag|>f.call(q="x")': ['<|python_tag|>f.call(q="x")'],
    },
    "mistral": {
        '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "f"}]': [
            ("f", '{"a": 1}'),
            ("f", "{}"),
        ],
        'Ok. [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]get_weather[CALL_ID]x1[ARGS]{}': [
            "Ok.",
            ("f", '{"a": 1}'),
            ("get_weather", "{}"),
        ],
        '[TOOL_CALLS]f{"a": "]"}': [("f", '{"a": "]"}')],
        "[TOOL_CALLS]g[ARGS]{}": ["[TOOL_CALLS]g[ARGS]{}"],
        "[TOOL_CALLS] [1, 2]": ["[TOOL_CALLS] [1, 2]"],
        '[TOOL_CALLS][{"name": "f"}, 7]': [("f", "{}"), ", 7]"],
        "[TOOL_CALLS]f[ARGS]no": ["[TOOL_CALLS]f[ARGS]no"],
    },
    "deepseekv3": {
        f"Hm.\n{_DS}{_V3}{_DE}": ["Hm.", ("f", '{"a": 1}')],
        f"{_DS}{_V3}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>{_V3}{_DE}": [
            ("f", '{"a": 1}'),
            ("f", '{"a": 1}'),
        ],
        f"{_DS}function<｜tool▁sep｜>g\n```json\n{{}}\n```{_DE}": [
            f"{_DS}function<｜tool▁sep｜>g\n```json\n{{}}\n```{_DE}"
        ],
        "<｜tool▁calls▁begin｜> nothing": ["<｜tool▁calls▁begin｜> nothing"],
    },
    "deepseekv31": {
        f'{_DS}f<｜tool▁sep｜>{{"a": "`"}}{_DE} more': [("f", '{"a": "`"}'), "more"],
        f"{_DS}function<｜tool▁sep｜>{{}}{_DE}": [("function", "{}")],
        f"{_DS}f<｜tool▁sep｜>oops": [f"{_DS}f<｜tool▁sep｜>oops"],
    },
    "pythonic": {
        "[get_weather(city=\"S\\u00e3o 'P'\", days=3), f()]": [
            ("get_weather", '{"city": "São \'P\'", "days": 3}'),
            ("f", "{}"),
        ],
        "[f(a=True, b=None, c=[1, 'x',], d={'k': {\"v\": -1.5}}, e=.5, f=1_0)]": [
            (
                "f",
                '{"a": true, "b": null, "c": [1, "x"], "d": {"k": {"v": -1.5}}, "e": 0.5, "f": 10}',
            )
        ],
        "<|python_start|>[f(a='\\ud83d\\ude00\\n\\x41\\q\"')]<|python_end|>": [
            ("f", '{"a": "\\ud83d\\ude00\\nA\\\\q\\""}')
        ],
        '{"name": "f", "parameters": {}}': [("f", "{}")],
        "[f(a=g(1))]": [("f", '{"a": '), "g(1))]"],
        "[f(a=1": [("f", '{"a": 1')],
        "[g(a=1)]": ["[g(a=1)]"],
        "[f(1)]": ["[f(1)]"],
        "[f(a=1, 2)]": [("f", '{"a": 1'), ", 2)]"],
        "[f(a=1,)]": [("f", '{"a": 1}')],
        "[f(a=1), 2]": [("f", '{"a": 1}'), ", 2]"],
        "[1, 2]": ["[1, 2]"],
        "see [f(a=1)]": ["see [f(a=1)]"],
    },
    "gpt-oss": {
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}': [
            ("f", '{"a": 1}')
        ],
        " to=functions.f<|channel|>commentary json<|message|>{}": [("f", "{}")],
        "<|channel|>final<|message|>Hi <there>": ["Hi <there>"],
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary"
        " to=functions.f<|message|>{}<|call|>": ["I look.", ("f", "{}")],
        "<|channel|>commentary to=functions.g<|message|>{}<|call|>": [
            "<|channel|>commentary to=functions.g<|message|>{}<|call|>"
        ],
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>ok": [
            "<|channel|>analysis<|message|>hm<|end|>ok"
        ],
        "plain": ["plain"],
        "to be": ["to be"],
        "<|channel|>": ["<|channel|>"],
        "<|channel|>final<|end|>x": ["<|channel|>final<|end|>x"],
    },
}

THOUGHTS = {
    ("deepseek-r1", None): {
        "hm\n</think>\n\nHi": [["hm"], "Hi"],
        "<think>\nhm</think>Hi </think>": [["hm"], "Hi </think>"],
        "only thought ": [["only thought "]],
        "hm</thi": [["hm</thi"]],
    },
    ("deepseek-r1", False): {"Hi": ["Hi"]},
    ("qwen3", None): {
        "<think>\nhm\n</think>\n\nHi": [["hm"], "Hi"],
        "\n<think></think>Hi": ["Hi"],
        "Hi <think>x</think>": ["Hi <think>x</think>"],
        "<thin": ["<thin"],
        "<think>hm": [["hm"]],
    },
    ("qwen3", True): {"hm</think> Hi": [["hm"], "Hi"]},
    ("gpt-oss", None): {
        "<|channel|>analysis<|message|>hm <b><|end|><|start|>assistant"
        "<|channel|>final<|message|>Hi": [["hm <b>"], "Hi"],
        "<|channel|>analysis to=python<|message|>1+1<|call|>": [["1+1"]],
    },
}
