"""A model of random weights in the shape of a known one, which vLLM, transformers and AnyChip load.

    .venv/bin/python bench/random_model.py SHAPE FOLDER

Speed depends on sizes, not on what the weights say: a race needs no download. Writes config.json,
model.safetensors in bfloat16, and a byte-level tokenizer of the shape's own vocabulary whose words
are made up. The same seed gives the same files. Answers are gibberish: ask with `ignore_eos`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from command_line import need

COMMON = {
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",  # the same, by its older name
}

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "qwen2.5-0.5b": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "bos_token_id": 151643,
        "eos_token_id": 151643,
    },
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
}
"""What is its own in config.json of each, as its makers published it; SHAPE is the name."""


def write_model(settings: Mapping[str, Any], folder: Path, seed: int = 0) -> int:
    """Write the folder; returns the bytes of its weights. Raises CheckpointError, OSError."""
    from anychip.model.families import FAMILIES, config_from_hf
    from anychip.model.safetensors_writer import write_safetensors
    from anychip.model.tiny_tensors import tensors_of

    config = config_from_hf(settings)
    family = FAMILIES[config.architecture]
    sources = family.sources(config, family.hf_names)
    tensors = tensors_of(sources, "bfloat16", "bfloat16", seed)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    write_tokenizer(settings, folder)
    (folder / "config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return sum(weight.data.nbytes for weight in tensors.values())


def write_tokenizer(settings: Mapping[str, Any], folder: Path) -> None:
    """A token for every id of the vocabulary, so that each answer has a text: the bytes, the
    special ones at their ids, made-up words elsewhere."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    special = {settings["bos_token_id"]: "<|begin|>"}
    special |= {settings["eos_token_id"]: "<|endoftext|>"}
    plain = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {i: plain[i] if i < len(plain) else _word(i) for i in range(settings["vocab_size"])}
    vocabulary = {word: number for number, word in {**words, **special}.items()}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(word, special=True) for word in special.values()])
    made.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special[settings["bos_token_id"]],
        "eos_token": special[settings["eos_token_id"]],
        "model_max_length": settings["max_position_embeddings"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=1) + "\n")


def _word(number: int) -> str:
    """A space and the number in letters; `Ġ` is the space of byte-level vocabularies."""
    letters = ""
    while number:
        number, digit = divmod(number, 26)
        letters += chr(ord("a") + digit)
    return "Ġ" + letters


def main() -> int:
    """Write one. Refuses a folder that holds something."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES, metavar="SHAPE", help=" or ".join(SHAPES))
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where it is written")
    parser.add_argument("--seed", type=int, default=0, help="of the weights [0]")
    asked = parser.parse_args()
    need("anychip", "tokenizers")
    if asked.folder.exists() and any(asked.folder.iterdir()):
        raise SystemExit(f"{asked.folder} is not empty")
    size = write_model({**COMMON, **SHAPES[asked.shape]}, asked.folder, asked.seed)
    print(f"{asked.folder}: {size / 1e6:,.0f} MB of weights in bfloat16")
    return 0


if __name__ == "__main__":
    sys.exit(main())
