"""Opens the tokenizer of a Hugging Face model folder: tokenizer.json and the files around it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Core

from anychip.text.errors import TokenizerFileError
from anychip.text.files import (
    TOKENIZER_JSON,
    is_there,
    listed_eos_ids,
    named_tokens,
    read_config,
)
from anychip.text.token_table import (
    SPACE_MARK,
    TokenTable,
    byte_alphabet,
    byte_level_piece,
    sentencepiece_piece,
)
from anychip.text.tokenizer import Tokenizer


def open_folder_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder. Only tokenizer.json has to be there.

    What surrounds a text is tokenizer.json's to say; add_bos_token and add_eos_token beside it in
    tokenizer_config.json are not read, as transformers 5 has it.
    Raises TokenizerFileError for a missing or broken file, or a decoder not known here.
    """
    core = _open_core(folder / TOKENIZER_JSON)
    config = read_config(folder)
    named = named_tokens(config)
    table = _token_table(core, frozenset(named.values()))
    bos = core.token_to_id(named["bos_token"]) if "bos_token" in named else None
    return Tokenizer(
        core=core,
        table=table,
        vocab_size=len(table.pieces),
        eos_ids=_eos_ids(folder, core, named),
        bos_id=bos,
        chat_template=_chat_template(folder, config),
        special_tokens=named,
    )


def _open_core(path: Path) -> Core:
    if not path.is_file():
        raise TokenizerFileError(f"{path} does not exist")
    try:
        core = Core.from_file(str(path))
    except Exception as error:
        raise TokenizerFileError(f"{path} cannot be read as a tokenizer: {error}") from error
    core.no_truncation()  # a saved training setting must not cut prompts
    core.no_padding()
    return core


def _token_table(core: Core, named: frozenset[str]) -> TokenTable:
    spelling = _spelling(core)
    vocabulary = core.get_vocab(with_added_tokens=True)
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, index in vocabulary.items():
        pieces[index] = spelling.normal(token)
    added = core.get_added_tokens_decoder()
    for index, entry in added.items():
        pieces[index] = spelling.added(entry.content)
    special = frozenset(index for index, entry in added.items() if _is_special(entry, named))
    return TokenTable(tuple(pieces), special, spelling.strip_space)


def _is_special(token: AddedToken, named: frozenset[str]) -> bool:
    return token.special or token.content in named


@dataclass(frozen=True)
class _Spelling:
    """How the tokens of a vocabulary spell bytes."""

    normal: Callable[[str], bytes]
    added: Callable[[str], bytes]
    strip_space: bool = False


def _spelling(core: Core) -> _Spelling:
    """Reads the decoder of tokenizer.json: byte-level, or SentencePiece's."""
    decoder = core.decoder
    steps = _decoder_steps(json.loads(decoder.__getstate__())) if decoder is not None else []
    kinds = {step["type"] for step in steps}
    if kinds == {"ByteLevel"}:
        alphabet = byte_alphabet()
        return _Spelling(partial(byte_level_piece, alphabet=alphabet), str.encode)
    if kinds == {"Metaspace"} and len(steps) == 1 and steps[0]["replacement"] == SPACE_MARK:
        strip = steps[0].get("prepend_scheme", "always") != "never"
        return _Spelling(sentencepiece_piece, sentencepiece_piece, strip)
    if all(_is_sentencepiece_step(step) for step in steps) and "Replace" in kinds:
        return _Spelling(sentencepiece_piece, sentencepiece_piece, "Strip" in kinds)
    raise TokenizerFileError(
        f"the decoder of tokenizer.json ({', '.join(sorted(kinds)) or 'none'}) is not known; "
        "known are ByteLevel, Metaspace, and SentencePiece's Replace, ByteFallback, Fuse, Strip"
    )


def _decoder_steps(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [step for part in decoder["decoders"] for step in _decoder_steps(part)]


def _is_sentencepiece_step(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":
        return bool(step["pattern"] == {"String": SPACE_MARK} and step["content"] == " ")
    if step["type"] == "Strip":
        return bool(step["content"] == " " and (step["start"], step["stop"]) == (1, 0))
    return step["type"] in ("ByteFallback", "Fuse")


def _eos_ids(folder: Path, core: Core, named: Mapping[str, str]) -> frozenset[int]:
    """Every end token that the folder names: generation_config, config, tokenizer_config."""
    eos = core.token_to_id(named["eos_token"]) if "eos_token" in named else None
    return listed_eos_ids(folder) | (frozenset() if eos is None else {eos})


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, else tokenizer_config's: a text, or the one named "default"."""
    path = folder / "chat_template.jinja"
    if is_there(path):
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TokenizerFileError(f"{path} cannot be read: {error}") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        entries = [entry for entry in template if isinstance(entry, dict)]
        entries.sort(key=lambda entry: entry.get("name") != "default")
        template = entries[0].get("template") if entries else None
    return template if isinstance(template, str) else None
