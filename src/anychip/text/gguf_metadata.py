"""The tokenizer's part of a GGUF file's metadata, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anychip.text.errors import TokenizerFileError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # token_type's values

# Control tokens that end a turn in the public chat formats (ChatML, Llama 3, Gemma, Phi 3).
_END_OF_TURN = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>"}
)
_PREFIX = "tokenizer.ggml."
_MAX_TOKEN_CHARACTERS = 1024  # the longest in public vocabularies is a run of some 128 spaces


@dataclass(frozen=True)
class Vocabulary:
    """One file's tokens by id, with the type of each; and its other keys, read with their type."""

    tokens: list[str]
    types: list[int]
    metadata: Mapping[str, Any]

    def of_type(self, *types: int) -> list[int]:
        """The ids whose token is of one of these types, ascending."""
        return [index for index, kind in enumerate(self.types) if kind in types]

    def token_id(self, key: str) -> int | None:
        """A token id such as `bos_token_id`; None where the file has none."""
        value = self.metadata.get(_PREFIX + key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise TokenizerFileError(f"{_PREFIX}{key} must be a token id, not {value!r}")
        if value >= len(self.tokens):
            raise TokenizerFileError(
                f"{_PREFIX}{key} is {value}, but the vocabulary has {len(self.tokens)} tokens"
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A yes or no such as `add_bos_token`."""
        value = self.metadata.get(_PREFIX + key, default)
        if not isinstance(value, bool):
            raise TokenizerFileError(f"{_PREFIX}{key} must be true or false, not {value!r}")
        return value

    def text(self, key: str) -> str | None:
        """A text such as `pre`; None where the file has none."""
        value = self.metadata.get(_PREFIX + key)
        if value is not None and not isinstance(value, str):
            raise TokenizerFileError(f"{_PREFIX}{key} must be a text, not {value!r}")
        return value

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        return {token: index for index, token in enumerate(self.tokens)}

    def merges(self) -> list[tuple[str, str]] | None:
        """The merge rules, best first; None where the file lists none."""
        if _PREFIX + "merges" not in self.metadata:
            return None
        pairs = []
        known = self.ids
        for rule in _list(self.metadata, "merges", str):
            left, _, right = rule.partition(" ")
            if not left or not right:
                raise TokenizerFileError(f"{_PREFIX}merges holds {rule!r}, which is no pair")
            if left not in known or right not in known or left + right not in known:
                part = next(p for p in (left, right, left + right) if p not in known)
                raise TokenizerFileError(f"merge rule {rule!r} needs {part!r}, no token")
            pairs.append((left, right))
        return pairs

    def scores(self) -> list[float]:
        """Each token's merge score; higher merges first."""
        return self._parallel(_list(self.metadata, "scores", float), "scores")

    def _parallel(self, values: list[float], key: str) -> list[float]:
        if len(values) != len(self.tokens):
            raise TokenizerFileError(
                f"{_PREFIX}{key} has {len(values)} entries for {len(self.tokens)} tokens"
            )
        return values


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """The checked vocabulary. Raises TokenizerFileError naming the key that is missing or wrong."""
    tokens = _list(metadata, "tokens", str)
    if not tokens:
        raise TokenizerFileError(f"{_PREFIX}tokens is empty")
    longest = max(tokens, key=len)
    if len(longest) > _MAX_TOKEN_CHARACTERS:
        raise TokenizerFileError(
            f"{_PREFIX}tokens holds a token of {len(longest)} characters; "
            f"the limit is {_MAX_TOKEN_CHARACTERS}"
        )
    types = [NORMAL] * len(tokens)
    if _PREFIX + "token_type" in metadata:
        types = _list(metadata, "token_type", int)
    if len(types) != len(tokens):
        raise TokenizerFileError(
            f"{_PREFIX}token_type has {len(types)} entries for {len(tokens)} tokens"
        )
    return Vocabulary(tokens, types, metadata)


def eos_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """Every token that ends an answer: those that are named, and the turns' ends."""
    named = (vocabulary.token_id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id"))
    turns = (
        index for index in vocabulary.of_type(CONTROL) if vocabulary.tokens[index] in _END_OF_TURN
    )
    return frozenset([*(index for index in named if index is not None), *turns])


def _list(metadata: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    values = metadata.get(_PREFIX + key)
    if not isinstance(values, list):
        raise TokenizerFileError(f"{_PREFIX}{key} is missing or not a list")
    for value in values:
        if not isinstance(value, kind):
            raise TokenizerFileError(f"{_PREFIX}{key} holds {value!r}, which is no {kind.__name__}")
    return values
