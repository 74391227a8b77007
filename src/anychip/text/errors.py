"""What text/ raises. Every message is fit to be shown to the person who sent the text or file."""

from __future__ import annotations

from anychip.model.errors import CheckpointError


class TextError(ValueError):
    """A request's text cannot be used; the message says where and why (HTTP 400)."""


class TemplateError(TextError):
    """A chat cannot be turned into a prompt: wrong messages, or the chat template refused them."""


class RendererLost(TextError):
    """The process that renders chats was ended from outside or does not answer: nobody can say
    anything of the chat (HTTP 503). It is replaced."""


class TokenizerFileError(CheckpointError):
    """A tokenizer file is missing, broken, or of a kind that is not known here."""


def require_unicode(text: str, what: str) -> None:
    """Raise `TextError` where `text` holds a lone surrogate, which no UTF-8 text can carry."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise TextError(
            f"{what} is not valid Unicode: lone surrogate U+{code:04X} at character {error.start}. "
            "Send well-formed text; in JSON a \\ud83d-like escape needs its second half."
        ) from error
