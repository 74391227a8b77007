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
from anychip.model.mapped import MappedFile
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
_ADDED = re.compile(rb'"added_tokens"\s*:\s*')
_HEAD = 1 << 20
"""Bytes that the added tokens take at most, for this way to find them."""


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
    data = MappedFile(file).data
    try:
        found = _added_id(token, data)
        found = _id_in_all(token, json.loads(bytes(data))) if found is None else found
    except (ValueError, TypeError, RecursionError) as error:
        raise TokenizerFileError(f"{file} cannot be read as a tokenizer: {error}") from error
    return frozenset() if found is None else frozenset({found})


def _added_id(token: str, data: memoryview) -> int | None:
    """Its id among the added tokens, where those that end a text are. They lie at the beginning of
    the file, whose rest, megabytes, is then not read. None where they are cut off or not there."""
    start = _ADDED.search(data)
    head = str(data[start.end() : start.end() + _HEAD], "utf-8", "ignore") if start else "[]"
    try:
        return _listed(token, json.JSONDecoder().raw_decode(head)[0])
    except ValueError:
        return None


def _id_in_all(token: str, whole: Any) -> int | None:
    """Its id in the parsed file: added, or in the vocabulary, which is an object of ids, or in a
    unigram model a list of pairs."""
    whole = whole if isinstance(whole, dict) else {}
    added = _listed(token, whole.get("added_tokens"))
    model = whole.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if added is None and isinstance(vocabulary, dict):
        return _index(vocabulary.get(token))
    if added is None and isinstance(vocabulary, list):
        return next((n for n, pair in enumerate(vocabulary) if pair[:1] == [token]), None)
    return added


def _listed(token: str, entries: Any) -> int | None:
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("content") == token:
            return _index(entry.get("id"))
    return None


def _index(value: object) -> int | None:
    return value if isinstance(value, int) else None
