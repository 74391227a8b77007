"""The files of a tokenizer: which one it is, and the JSON files around a folder's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.model.errors import not_found
from anychip.text.errors import TokenizerFileError

TOKENIZER_JSON = "tokenizer.json"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_file(path: Path) -> Path:
    """The .gguf file or the tokenizer.json that holds the tokenizer at `path`: one of the two, or
    a folder. Raises TokenizerFileError where there is none."""
    if path.is_dir():
        return _in_folder(path)
    if not path.exists():
        raise TokenizerFileError(str(not_found(path)))
    if path.suffix == ".gguf" or path.name == TOKENIZER_JSON:
        return path
    raise TokenizerFileError(
        f"{path} is no tokenizer known here: give a folder with tokenizer.json, or a .gguf file"
    )


def _in_folder(folder: Path) -> Path:
    if is_there(folder / TOKENIZER_JSON):
        return folder / TOKENIZER_JSON
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    found = "several .gguf files (name one)" if files else "no .gguf file either"
    raise TokenizerFileError(
        f"no tokenizer.json in {folder}, and {found}; --tokenizer-path names another place. "
        "A tokenizer.model alone is not read: save it as tokenizer.json first."
    )


def is_there(path: Path) -> bool:
    """Whether a folder has this file. Raises TokenizerFileError for a link whose target is gone:
    without the file the model would answer, in another form or without an end."""
    if path.is_symlink() and not path.exists():
        raise TokenizerFileError(f"{path} is a link to nothing; fetch the model again")
    return path.exists()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no such file."""
    if not is_there(path):
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerFileError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerFileError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, over special_tokens_map.json."""
    config = read_json(folder / "tokenizer_config.json")
    return {**read_json(folder / "special_tokens_map.json"), **config}


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token ...: each a text, or an object whose `content` is the text."""
    named = {}
    for name in _NAMED_TOKENS:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            named[name] = text
    return named


def listed_eos_ids(folder: Path) -> frozenset[int]:
    """End tokens that the model's own files list: generation_config.json, config.json.

    Raises TokenizerFileError where they are no ids: answers would not end.
    """
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = read_json(folder / name).get("eos_token_id")
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(index) is int for index in listed):
            raise TokenizerFileError(
                f"{folder / name}: eos_token_id is {value!r:.60}; it must be a token id, or a list"
                " of them"
            )
        ids.update(listed)
    return frozenset(ids)
