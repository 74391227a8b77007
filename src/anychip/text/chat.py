"""Chat messages to the prompt that the model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anychip.text.errors import TemplateError, require_unicode
from anychip.text.render_process import RenderProcess

DEFAULT_LIMIT_S = 5.0

_NO_TEMPLATE = (
    "this model has no chat template: use /v1/completions, or start the server with "
    "--chat-template FILE"
)


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
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt for `messages`, special tokens spelled out (encode it without adding any).

        tools: JSON schemas, as the API takes them. kwargs: further variables for the template.
        Raises TemplateError: no template, a message of the wrong shape, the template's own
        complaint, or a limit that it ran into; TextError for a lone surrogate.
        """
        if self.text is None:
            raise TemplateError(_NO_TEMPLATE)
        if "messages" in kwargs:
            raise TemplateError("chat template variable 'messages' is set by the server")
        variables = {
            **self._special_tokens,
            **kwargs,
            "messages": plain_messages(messages),
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        return self._process.render(self.text, variables)

    def close(self) -> None:
        """End the rendering process."""
        self._process.close()


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates expect them: `content` one text, whether sent as text or as parts."""
    if not messages:
        raise TemplateError("messages must hold at least one message")
    return [_plain_message(index, message) for index, message in enumerate(messages)]


def _plain_message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise TemplateError(f"{where} must be an object, not {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str):
        raise TemplateError(f"{where}.role must be a string, not {type(role).__name__}")
    content = _plain_content(f"{where}.content", message.get("content"), role)
    return {**message, "content": content}


def _plain_content(where: str, content: Any, role: str) -> str | None:
    if content is None and role == "assistant":
        return None  # an answer that is tool calls alone
    if isinstance(content, str):
        require_unicode(content, where)
        return content
    if isinstance(content, list):
        return "".join(_part_text(f"{where}[{index}]", part) for index, part in enumerate(content))
    raise TemplateError(
        f"{where} must be a string or a list of text parts, not {type(content).__name__}"
    )


def _part_text(where: str, part: Any) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind != "text":
        shown = repr(kind) if isinstance(part, Mapping) else type(part).__name__
        raise TemplateError(f"{where} is of type {shown}; only 'text' parts are supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise TemplateError(f"{where}.text must be a string, not {type(text).__name__}")
    require_unicode(text, where)
    return text
