"""Chat messages to the prompt that the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anychip.text.chat_messages import plain_messages, with_arguments
from anychip.text.errors import TemplateError
from anychip.text.render_process import RenderProcess

DEFAULT_LIMIT_S = 5.0

_NO_TEMPLATE = (
    "this model has no chat template: use /v1/completions, or start the server with "
    "--chat-template FILE"
)

_TWO_TURNS = (
    "continue_final_message and add_generation_prompt exclude each other: the prompt ends either "
    "within the last message or after the beginning of a new one"
)
_OPEN_END = "CONTINUE_FINAL_MESSAGE_TAG "
_NEEDLE = '"argument_needle":'
_PROBE_TEXT = '{"argument_needle": "value"}'


class ChatTemplate:
    """One model's chat template, rendered in a sandbox under limits of time and memory.

    template: jinja2 text, or None where the model has none. special_tokens: bos_token, eos_token
    and the like, as the template names them. The limits are kept by a process of its own (see
    render.py), so a template that loops for ever costs its own request and nothing else.
    Thread-safe; `close()` ends the process. process: one that was started already, whose own
    limit holds.
    """

    def __init__(
        self,
        template: str | None,
        special_tokens: Mapping[str, str] | None = None,
        *,
        limit_s: float = DEFAULT_LIMIT_S,
        process: RenderProcess | None = None,
    ) -> None:
        self.text = template
        self._special_tokens = dict(special_tokens or {})
        self._process = process or RenderProcess(limit_s)
        self._text_arguments: bool | None = None
        self._null_content = True

    def check(self) -> None:
        """Compile the template; TemplateError where it is broken. Also starts the process, so
        that the first request need not wait for it. No template at all is no error here."""
        if self.text is not None:
            self._process.render(self.text, None)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt for `messages`, special tokens spelled out (encode it without adding any).

        add_generation_prompt: begin the assistant's turn; None: unless a message is continued.
        continue_final_message: the prompt ends with the last message, the assistant's, left open.
        tools: JSON schemas, as the API takes them. kwargs: further variables for the template.
        Raises TemplateError: no template, a message of the wrong shape, the template's own
        complaint, or a limit that it ran into; TextError for a lone surrogate.
        """
        if self.text is None:
            raise TemplateError(_NO_TEMPLATE)
        if "messages" in kwargs:
            raise TemplateError("chat template variable 'messages' is set by the server")
        if continue_final_message and add_generation_prompt:
            raise TemplateError(_TWO_TURNS)
        plain = plain_messages(messages)
        if any(message.get("tool_calls") for message in plain):
            plain = with_arguments(plain, as_text=self._takes_text())
        content = _left_open(plain) if continue_final_message else ""
        variables = {
            **self._special_tokens,
            **kwargs,
            "messages": plain,
            "tools": list(tools) if tools else None,
            "add_generation_prompt": not continue_final_message
            if add_generation_prompt is None
            else add_generation_prompt,
        }
        text = self._render(self.text, variables)
        return _cut_open(text, content) if continue_final_message else text

    def _render(self, template: str, variables: dict[str, Any]) -> str:
        """Messages that are calls alone have no content. Some templates ask for that, some fail
        with it: then, and from then on, it is an empty text."""
        messages = variables["messages"]
        silent = any(message.get("content", "") is None for message in messages)
        if not silent or self._null_content:
            try:
                return self._process.render(template, variables)
            except TemplateError:
                if not silent:
                    raise
                told = self._process.render(template, {**variables, "messages": _spoken(messages)})
                self._null_content = False
                return told
        return self._process.render(template, {**variables, "messages": _spoken(messages)})

    def _takes_text(self) -> bool:
        """Whether the template writes a call's arguments right where they are a text. Tried once:
        templates differ, and do not say."""
        if self._text_arguments is None:
            self._text_arguments = self._shows_call(_PROBE_TEXT)
        return self._text_arguments

    def _shows_call(self, arguments: str) -> bool:
        """Whether the template writes these arguments of a call as they are, and not as a JSON
        string of them."""
        function = {"name": "probe", "arguments": arguments}
        call = {"id": "abcdefghi", "type": "function", "function": function}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        variables = {
            **self._special_tokens,
            "messages": [{"role": "user", "content": "probe"}, answer],
            "tools": [{"type": "function", "function": {"name": "probe", "parameters": {}}}],
            "add_generation_prompt": False,
        }
        try:
            return _NEEDLE in self._process.render(self.text or "", variables)
        except TemplateError:
            return False

    def close(self) -> None:
        """End the rendering process."""
        self._process.close()


def _left_open(messages: list[dict[str, Any]]) -> str:
    """Mark the end of the last message; its content. TemplateError where it cannot be continued."""
    last = messages[-1]
    content = last["content"]
    if last["role"] != "assistant" or not content or last.get("tool_calls"):
        raise TemplateError(
            "continue_final_message needs a last message of role 'assistant' with text and without"
            " tool calls; this one cannot be continued"
        )
    messages[-1] = {**last, "content": content + _OPEN_END}
    return str(content)


def _cut_open(text: str, content: str) -> str:
    """The prompt up to the mark, as transformers cuts it. TemplateError where the template left
    out the message or its end."""
    place = text.rfind(_OPEN_END.strip())
    if place < 0 or content.strip() not in text:
        raise TemplateError("the chat template does not show the last message, so that it cannot be"
                            " continued; leave continue_final_message out")  # fmt: skip
    kept = text.startswith(_OPEN_END, place)
    return text[:place] if kept else text[:place].rstrip()


def _spoken(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, with a text as content in each."""
    return [
        {**message, "content": ""} if message.get("content", "") is None else message
        for message in messages
    ]
