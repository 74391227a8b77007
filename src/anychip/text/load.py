"""Opens the tokenizer of a model, wherever the model keeps it."""

from __future__ import annotations

from pathlib import Path

from anychip.model.checkpoint import not_found
from anychip.text.chat import ChatTemplate
from anychip.text.errors import TokenizerFileError
from anychip.text.folder_tokenizer import open_folder_tokenizer
from anychip.text.gguf_tokenizer import open_gguf_tokenizer
from anychip.text.tokenizer import Tokenizer


def open_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer at `path`: a .gguf file, a folder with tokenizer.json, or that file itself.

    A folder without tokenizer.json but with one .gguf file uses that file's.
    Raises TokenizerFileError where there is none, or a file is broken or of an unknown kind.
    """
    if path.is_dir():
        return _open_from_folder(path)
    if not path.exists():
        raise TokenizerFileError(str(not_found(path)))
    if path.suffix == ".gguf":
        return open_gguf_tokenizer(path)
    if path.name == "tokenizer.json":
        return open_folder_tokenizer(path.parent)
    raise TokenizerFileError(
        f"{path} is no tokenizer known here: give a folder with tokenizer.json, or a .gguf file"
    )


def _open_from_folder(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return open_folder_tokenizer(folder)
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return open_gguf_tokenizer(files[0])
    found = "several .gguf files (name one)" if files else "no .gguf file either"
    raise TokenizerFileError(
        f"no tokenizer.json in {folder}, and {found}; --tokenizer-path names another place. "
        "A tokenizer.model alone is not read: save it as tokenizer.json first."
    )


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
