"""Texts that tokenizers get wrong, and small vocabularies to try them on."""

from __future__ import annotations

import gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "Hello, world!",
    "12345",
    "a1b22c333 3.14159 1,000,000 x=10**9",
    "don't they'll I'VE we're",
    "  leading, double  inside, trailing   ",
    "tabs\t\tand\r\nlines\n\n\n  indented",
    "def f(x):\n    return x+1\n",
    "naïve café, cafe\u0301",
    "中文，日本語、한국어",
    "🤖🧑‍🚀 a family 👨‍👩‍👧‍👦",
    "² ½ ٣٤ Ⅷ ①",
    "\u00a0\u3000\u200b\ufeff odd spaces",
    "\x00\x01\x7f control",
    "<|im_start|>user\nhi<|im_end|>\n",
    "▁ marks ▁▁",
    "<0x41> is spelled, not a byte",
    "",
]

CORPUS = [
    *TEXTS,
    "the quick brown fox jumps over the lazy dog " * 3,
    "11 22 33 11 22 33 2024 2025 2026 1234567890 100 200 1000",
    "    four spaces        eight spaces",
]


def train_byte_level(vocab_size=600, pre_tokenizer=None):
    """A byte-level BPE tokenizer with one special token, `<|end|>`."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(alphabet),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    core.train_from_iterator(CORPUS * 4, trainer)
    return core


def gguf_writer(folder):
    """Writes a GGUF file that holds metadata alone. Keys without a dot are tokenizer.ggml keys."""

    def write(metadata, name="model.gguf"):
        path = folder / name
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in metadata.items():
            _add(writer, key if "." in key else f"tokenizer.ggml.{key}", value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return write


def _add(writer, key, value):
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_string(key, value)
