"""The tokens that end an answer, read without opening the tokenizer, which takes time and memory.

The process that computes needs no more of a tokenizer than these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.model.gguf import read_gguf_metadata
from anychip.text.errors import TokenizerFileError
from anychip.text.files import (
    TOKENIZER_JSON,
    listed_eos_ids,
    named_tokens,
    read_config,
    tokenizer_file,
)
from anychip.text.gguf_metadata import eos_ids, read_vocabulary

# Inside of a JSON text a quotation mark has a backslash before it, so this can only be the key.
_ADDED = re.compile(r'"added_tokens"\s*:\s*')


def read_eos_ids(path: Path) -> frozenset[int]:
    """`eos_ids` of the tokenizer that `open_tokenizer` opens there.

    Raises TokenizerFileError where there is none, or where what is read of it is broken.
    """
    file = tokenizer_file(path)
    if file.name != TOKENIZER_JSON:
        return eos_ids_in(read_gguf_metadata(file))
    named = named_tokens(read_config(file.parent)).get("eos_token")
    ids = listed_eos_ids(file.parent)
    return ids if named is None else ids | _ids_of(named, file)


def eos_ids_in(metadata: Mapping[str, Any]) -> frozenset[int]:
    """The same of a GGUF file's metadata."""
    return eos_ids(read_vocabulary(metadata))


def _ids_of(token: str, file: Path) -> frozenset[int]:
    """The id of a token; empty where the vocabulary lacks it."""
    try:
        text = file.read_text(encoding="utf-8")
        found = _added_id(token, text)
        found = _plain_id(token, text) if found is None else found
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerFileError(f"{file} cannot be read as a tokenizer: {error}") from error
    return frozenset() if found is None else frozenset({found})


def _added_id(token: str, text: str) -> int | None:
    """Its id among the added tokens, where the tokens that end a text are: they lie at the file's
    beginning, and the rest, which is megabytes, need not be parsed."""
    start = _ADDED.search(text)
    entries = json.JSONDecoder().raw_decode(text, start.end())[0] if start else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("content") == token:
            return _index(entry.get("id"))
    return None


def _plain_id(token: str, text: str) -> int | None:
    """Its id in the vocabulary: an object of ids, or in a unigram model a list of pairs."""
    whole = json.loads(text)
    model = whole.get("model") if isinstance(whole, dict) else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        return _index(vocabulary.get(token))
    pairs = enumerate(vocabulary) if isinstance(vocabulary, list) else ()
    return next((n for n, pair in pairs if isinstance(pair, list) and pair[:1] == [token]), None)


def _index(value: object) -> int | None:
    return value if isinstance(value, int) else None
