"""Builds the tokenizer that a GGUF file describes in its metadata.

Keys and token types: the GGUF specification, section "Tokenizer" (ggml, docs/gguf.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Core

from anychip.model.gguf import read_gguf_metadata
from anychip.text.errors import TokenizerFileError
from anychip.text.gguf_metadata import (
    BYTE,
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    Vocabulary,
    eos_ids,
    read_vocabulary,
)
from anychip.text.pretokenizers import PreTokenizer, find_pre_tokenizer
from anychip.text.token_table import (
    SPACE_MARK,
    TokenTable,
    byte_alphabet,
    byte_level_piece,
    sentencepiece_piece,
)
from anychip.text.tokenizer import Tokenizer, WrapIds


def open_gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer inside a .gguf file."""
    metadata = read_gguf_metadata(path)
    try:
        return tokenizer_from_metadata(metadata)
    except TokenizerFileError as error:
        raise TokenizerFileError(str(error), path=path) from error


def tokenizer_from_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that GGUF metadata describes.

    Kinds: `gpt2` (byte-level BPE, split as `tokenizer.ggml.pre` says) and `llama`
    (SentencePiece BPE with byte fallback). Raises TokenizerFileError for any other kind, an
    unknown splitting, and for values that contradict each other.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise TokenizerFileError(
            f"tokenizer kind {kind!r} (tokenizer.ggml.model) is not known; known are "
            "'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE)"
        )
    vocabulary = read_vocabulary(metadata)
    if kind == "gpt2":
        return _byte_level(vocabulary)
    return _sentencepiece(vocabulary)


def _byte_level(vocabulary: Vocabulary) -> Tokenizer:
    splitting = find_pre_tokenizer(vocabulary.text("pre") or "default")
    core = Core(_byte_level_model(vocabulary, splitting))
    core.pre_tokenizer = splitting.splitter()
    normalizer = splitting.normalizer()
    if normalizer is not None:
        core.normalizer = normalizer
    raw = set(vocabulary.of_type(CONTROL, USER_DEFINED, UNKNOWN))
    alphabet = byte_alphabet()
    pieces = tuple(
        token.encode("utf-8") if index in raw else byte_level_piece(token, alphabet)
        for index, token in enumerate(vocabulary.tokens)
    )
    return _finish(core, vocabulary, pieces, add_bos=splitting.add_bos, strip_space=False)


def _byte_level_model(vocabulary: Vocabulary, splitting: PreTokenizer) -> models.BPE:
    merges = vocabulary.merges()
    if merges is None:
        raise TokenizerFileError("tokenizer.ggml.merges is missing; byte-level BPE needs it")
    return models.BPE(vocab=vocabulary.ids, merges=merges, ignore_merges=splitting.whole_words)


def _sentencepiece(vocabulary: Vocabulary) -> Tokenizer:
    unknown = vocabulary.token_id("unknown_token_id")
    if unknown is None:
        unknown = next(iter(vocabulary.of_type(UNKNOWN)), 0)
    core = Core(
        models.BPE(
            vocab=vocabulary.ids,
            merges=vocabulary.merges() or _merges_from_scores(vocabulary),
            unk_token=vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefixed = vocabulary.flag("add_space_prefix", default=True)
    marks: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE_MARK), *marks] if prefixed else marks
    )
    pieces = tuple(sentencepiece_piece(token) for token in vocabulary.tokens)
    return _finish(core, vocabulary, pieces, add_bos=True, strip_space=prefixed)


def _merges_from_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every way to make a token from two others, the best-scored result first.

    SentencePiece joins the neighbours whose union scores highest; a list of pairs in that order
    makes a BPE model do the same.
    """
    skipped = {CONTROL, UNKNOWN, UNUSED, BYTE}
    known = {
        token: (index, score)
        for index, (token, score, kind) in enumerate(
            zip(vocabulary.tokens, vocabulary.scores(), vocabulary.types, strict=True)
        )
        if kind not in skipped
    }
    ranked = []
    for token, (_, score) in known.items():
        for cut in range(1, len(token)):
            left, right = known.get(token[:cut]), known.get(token[cut:])
            if left is not None and right is not None:
                ranked.append((-score, left[0], right[0]))
    ranked.sort()
    tokens = vocabulary.tokens
    return [(tokens[left], tokens[right]) for _, left, right in ranked]


def _finish(
    core: Core,
    vocabulary: Vocabulary,
    pieces: tuple[bytes, ...],
    *,
    add_bos: bool,
    strip_space: bool,
) -> Tokenizer:
    special = vocabulary.of_type(CONTROL, UNKNOWN)
    core.add_special_tokens(_added(vocabulary, special, special=True))
    core.add_tokens(_added(vocabulary, vocabulary.of_type(USER_DEFINED), special=False))
    template = vocabulary.metadata.get("tokenizer.chat_template")
    return Tokenizer(
        core=core,
        table=TokenTable(pieces, frozenset(special), strip_space),
        vocab_size=len(vocabulary.tokens),
        eos_ids=eos_ids(vocabulary),
        bos_id=vocabulary.token_id("bos_token_id"),
        chat_template=template if isinstance(template, str) else None,
        special_tokens=_special_tokens(vocabulary),
        wrap=_wrap(vocabulary, add_bos),
    )


def _added(vocabulary: Vocabulary, ids: list[int], *, special: bool) -> list[AddedToken]:
    """Tokens found in the text as they are spelled, before anything is split."""
    return [
        AddedToken(vocabulary.tokens[index], normalized=False, special=special)
        for index in ids
        if vocabulary.tokens[index]
    ]


def _wrap(vocabulary: Vocabulary, add_bos: bool) -> WrapIds:
    bos = vocabulary.token_id("bos_token_id")
    eos = vocabulary.token_id("eos_token_id")
    before = bos is not None and vocabulary.flag("add_bos_token", default=add_bos)
    after = eos is not None and vocabulary.flag("add_eos_token", default=False)
    return WrapIds(
        before=(bos,) if before and bos is not None else (),
        after=(eos,) if after and eos is not None else (),
    )


def _special_tokens(vocabulary: Vocabulary) -> dict[str, str]:
    keys = {
        "bos_token": "bos_token_id",
        "eos_token": "eos_token_id",
        "unk_token": "unknown_token_id",
        "pad_token": "padding_token_id",
    }
    ids = {name: vocabulary.token_id(key) for name, key in keys.items()}
    return {name: vocabulary.tokens[index] for name, index in ids.items() if index is not None}
