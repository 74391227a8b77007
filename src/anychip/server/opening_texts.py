"""Tokenizer and chat template, opened before anything else of HTTP is imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anychip import heap
from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.model.errors import CheckpointError
from anychip.text.chat import DEFAULT_LIMIT_S, ChatTemplate
from anychip.text.errors import RendererLost, TemplateError
from anychip.text.load import open_tokenizer
from anychip.text.render_process import RenderProcess
from anychip.text.tokenizer import Tokenizer


def open_text(
    config: ServeConfig, meanwhile: Callable[[], None] | None = None
) -> tuple[Tokenizer, ChatTemplate]:
    """Tokenizer and chat template of the configured model. StartError says what is wrong.

    meanwhile: what else there is to do before the template's process has started. It comes behind
    the tokenizer: what that takes for a moment, three times what stays, is then given back.
    """
    path = config.tokenizer_path or config.model_path
    if path is None:
        raise StartError("--model-path: no model to serve; name a folder or a .gguf file")
    renderer = RenderProcess(DEFAULT_LIMIT_S)
    renderer.start()  # while the tokenizer is opened
    try:
        tokenizer = open_tokenizer(Path(path).expanduser())
        heap.trim()
        text = _template_text(config, tokenizer)
        if text is None:
            renderer.close()
        template = ChatTemplate(text, tokenizer.special_tokens, process=renderer)
        if meanwhile is not None:
            meanwhile()
        template.check()
    except BaseException as error:
        renderer.close()
        if isinstance(error, CheckpointError):
            raise StartError(str(error)) from error
        if isinstance(error, (TemplateError, RendererLost)):
            raise StartError(f"--chat-template: {error}") from error
        raise
    return tokenizer, template


def _template_text(config: ServeConfig, tokenizer: Tokenizer) -> str | None:
    if config.chat_template is None:
        return tokenizer.chat_template
    try:
        return Path(config.chat_template).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"--chat-template: cannot read {config.chat_template}: {error}") from error
