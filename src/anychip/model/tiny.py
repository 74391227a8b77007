"""Tiny Llama models with random weights, written with numpy alone: conformance and regression
need a model in every format where nothing can be downloaded."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from anychip.contract.tensor import Shape
from anychip.model.errors import CheckpointError
from anychip.model.gguf_writer import Setting, write_gguf
from anychip.model.quantize import quantize
from anychip.model.tiny_tensors import matrix_values, norm_weight

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PAD, BEGIN, END = range(3)
LEAST_VOCABULARY = len(SPECIAL) + 256
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5


@dataclass(frozen=True)
class TinySizes:
    """Sizes in elements, context in positions. tied 1: the output shares the embedding's table.

    A tensor depends on the seed, its name and shape alone: the model with one layer less is this
    one, cut.
    """

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    intermediate: int = 128
    vocabulary: int = 384
    context: int = 2048
    seed: int = 0
    tied: int = 0

    def __post_init__(self) -> None:
        if self.vocabulary < LEAST_VOCABULARY:
            raise CheckpointError(
                f"a vocabulary of {self.vocabulary}: special tokens and bytes alone "
                f"are {LEAST_VOCABULARY}"
            )

    @property
    def label(self) -> str:
        """What differs from the defaults, for a file's name."""
        chosen = asdict(self)
        return "".join(
            f"-{f.name}{chosen[f.name]}" for f in fields(self) if chosen[f.name] != f.default
        )


def write_tiny(folder: Path, format: str = "float32", **sizes: int) -> Path:
    """Write `folder`/tiny-...gguf and return its path: Llama, byte-level tokenizer, chat template.

    format: of every matrix, a plain dtype or a block format (K must then fill whole blocks); norms
    are float32. sizes: fields of TinySizes. Raises CheckpointError, UnsupportedModel, TypeError
    for a size that there is not, OSError.
    """
    chosen = TinySizes(**sizes)
    tensors = {
        name: norm_weight(chosen.seed, name, shape)
        if len(shape) == 1
        else quantize(matrix_values(chosen.seed, name, shape), format)
        for name, shape in _shapes(chosen)
    }
    path = folder / f"tiny-{format}{chosen.label}.gguf"
    write_gguf(path, {**_settings(chosen), **_tokenizer(chosen.vocabulary)}, tensors)
    return path


def _shapes(sizes: TinySizes) -> Iterator[tuple[str, Shape]]:
    hidden, inner = sizes.hidden, sizes.intermediate
    query, key = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    yield "token_embd.weight", (sizes.vocabulary, hidden)
    for i in range(sizes.layers):
        layer = f"blk.{i}."
        yield f"{layer}attn_norm.weight", (hidden,)
        yield f"{layer}attn_q.weight", (query, hidden)
        yield f"{layer}attn_k.weight", (key, hidden)
        yield f"{layer}attn_v.weight", (key, hidden)
        yield f"{layer}attn_output.weight", (hidden, query)
        yield f"{layer}ffn_norm.weight", (hidden,)
        yield f"{layer}ffn_gate.weight", (inner, hidden)
        yield f"{layer}ffn_up.weight", (inner, hidden)
        yield f"{layer}ffn_down.weight", (hidden, inner)
    yield "output_norm.weight", (hidden,)
    if not sizes.tied:
        yield "output.weight", (sizes.vocabulary, hidden)


def _settings(sizes: TinySizes) -> dict[str, Setting]:
    return {
        "general.architecture": "llama",
        "general.name": f"tiny{sizes.label}",
        "llama.block_count": sizes.layers,
        "llama.context_length": sizes.context,
        "llama.embedding_length": sizes.hidden,
        "llama.feed_forward_length": sizes.intermediate,
        "llama.attention.head_count": sizes.heads,
        "llama.attention.head_count_kv": sizes.kv_heads,
        "llama.attention.key_length": sizes.head_dim,
        "llama.attention.value_length": sizes.head_dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": sizes.head_dim,
        "llama.rope.freq_base": 10000.0,
        "llama.vocab_size": sizes.vocabulary,
    }


def _tokenizer(vocabulary: int) -> dict[str, Setting]:
    """Specials, 256 bytes, then pairs of letters as far as the vocabulary goes, then fillers."""
    merges = list(itertools.islice(_pairs(), vocabulary - LEAST_VOCABULARY))
    tokens = [*SPECIAL, *_byte_characters(), *("".join(pair) for pair in merges)]
    fillers = [f"<|unused_{i}|>" for i in range(vocabulary - len(tokens))]
    kinds = [_CONTROL] * len(SPECIAL) + [_NORMAL] * (len(tokens) - len(SPECIAL))
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens + fillers,
        "tokenizer.ggml.token_type": kinds + [_UNUSED] * len(fillers),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
        "tokenizer.ggml.bos_token_id": BEGIN,
        "tokenizer.ggml.eos_token_id": END,
        "tokenizer.ggml.padding_token_id": PAD,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _byte_characters() -> list[str]:
    """A character for each byte: printable Latin-1 stands for itself, the others for U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _pairs() -> Iterator[tuple[str, str]]:
    """A space with a letter, then letters: all different once joined."""
    space = _byte_characters()[ord(" ")]
    return itertools.product((space, *string.ascii_lowercase), string.ascii_lowercase)
