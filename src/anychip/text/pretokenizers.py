"""How byte-level BPE vocabularies split text before merging, by the name a GGUF file gives.

The patterns are part of each public tokenizer's definition (its tokenizer.json); the names are
those of the GGUF key `tokenizer.ggml.pre`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from anychip.text.errors import TokenizerFileError

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """patterns: applied one after the other, each match cut out as a piece of its own.

    whole_words: a piece that is itself a token is taken as it is, unmerged.
    add_bos: begin-of-sequence is added where the file does not say. nfc: text is composed first.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    add_bos: bool = False
    nfc: bool = False

    def splitter(self) -> pre_tokenizers.PreTokenizer:
        """The pre-tokenizer object: the patterns, then bytes to the byte-level alphabet."""
        cuts: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns
        ]
        cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(cuts)

    def normalizer(self) -> normalizers.Normalizer | None:
        """What is done to the text before it is split, or None."""
        return normalizers.NFC() if self.nfc else None


_GPT2_STYLE = PreTokenizer((_GPT2,))
_DIGITS_THEN_GPT2 = PreTokenizer((r"\p{N}", _GPT2))
_LLAMA3_STYLE = PreTokenizer((_LLAMA3,), whole_words=True, add_bos=True)

KNOWN: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": _GPT2_STYLE,
    "smollm": _DIGITS_THEN_GPT2,
    "starcoder": _DIGITS_THEN_GPT2,
    "llama-bpe": _LLAMA3_STYLE,
    "llama3": _LLAMA3_STYLE,
    "llama-v3": _LLAMA3_STYLE,
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, add_bos=True),
}


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The splitting that `tokenizer.ggml.pre` names; TokenizerFileError for an unknown name."""
    if name not in KNOWN:
        raise TokenizerFileError(
            f"unknown pre-tokenizer {name!r} (tokenizer.ggml.pre); known are "
            f"{', '.join(sorted(KNOWN))}. Guessing one would give wrong token ids."
        )
    return KNOWN[name]
