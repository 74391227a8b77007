"""Opens the tokenizer of a model, wherever the model keeps it."""

from __future__ import annotations

from pathlib import Path

from anychip.text.chat import ChatTemplate
from anychip.text.errors import TokenizerFileError
from anychip.text.files import TOKENIZER_JSON, tokenizer_file
from anychip.text.folder_tokenizer import open_folder_tokenizer
from anychip.text.gguf_tokenizer import open_gguf_tokenizer
from anychip.text.tokenizer import Tokenizer


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer at `path`: a .gguf file, a folder with tokenizer.json, or that file itself.

    A folder without tokenizer.json but with one .gguf file uses that file's.
    Raises TokenizerFileError where there is none, or a file is broken or of an unknown kind.
    """
    file = tokenizer_file(path)
    if file.name == TOKENIZER_JSON:
        return open_folder_tokenizer(file.parent)
    return open_gguf_tokenizer(file)


def open_chat_template(tokenizer: Tokenizer, file: str | None) -> ChatTemplate:
    """The template of `--chat-template FILE`, otherwise the model's own. Close it after use.

    Raises TokenizerFileError where the file cannot be read.
    """
    template = tokenizer.chat_template
    if file is not None:
        try:
            template = Path(file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerFileError(f"--chat-template: cannot read {file}: {error}") from error
    return ChatTemplate(template, tokenizer.special_tokens)
