"""A model of random weights in the shape of a known one, which the peers and AnyChip load.

    .venv/bin/python bench/random_model.py SHAPE FOLDER

Speed depends on sizes, not on what the weights say: a race needs no download. Writes config.json,
model.safetensors in bfloat16, and a byte-level tokenizer of the shape's own vocabulary whose words
are made up, for vLLM, transformers and AnyChip; with --gguf also BF16.gguf, Q8_0.gguf and Q4_1.gguf
for llama.cpp and AnyChip, without the factors that lengthen Llama's context (a matter of angles,
not of speed). The same seed gives the same files. Answers are gibberish: ask with `ignore_eos`.
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


GGUF_FORMATS = {"BF16": "bfloat16", "Q8_0": "q8_0", "Q4_1": "q4_1"}
"""Name of a file -> the format of its matrices."""


def unscaled(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without what lengthens the context, for which GGUF has a tensor of its own."""
    return {key: value for key, value in settings.items() if key != "rope_scaling"}


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


def vocabulary(settings: Mapping[str, Any]) -> list[str]:
    """A token for every id, so that each answer has a text: the bytes, made-up words, and the
    special ones at their ids."""
    from tokenizers import pre_tokenizers

    plain = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [plain[i] if i < len(plain) else _word(i) for i in range(settings["vocab_size"])]
    for number, word in special_tokens(settings).items():
        words[number] = word
    return words


def special_tokens(settings: Mapping[str, Any]) -> Mapping[int, str]:
    """Where begin and end are one token, it is the end."""
    return {settings["bos_token_id"]: "<|begin|>", settings["eos_token_id"]: "<|endoftext|>"}


def write_tokenizer(settings: Mapping[str, Any], folder: Path) -> None:
    """As a Hugging Face folder has it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    special = special_tokens(settings)
    numbers = {word: number for number, word in enumerate(vocabulary(settings))}
    made = Tokenizer(models.BPE(vocab=numbers, merges=[]))
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


def write_gguf_file(settings: Mapping[str, Any], path: Path, format: str, seed: int = 0) -> int:
    """Write one file, its matrices in `format`; returns the bytes of its weights.

    Raises CheckpointError where K does not fill the format's blocks, OSError.
    """
    from anychip.model.families import FAMILIES, config_from_hf
    from anychip.model.gguf_writer import write_gguf
    from anychip.model.tiny_family import gguf_sizes
    from anychip.model.tiny_tensors import tensors_of

    config = config_from_hf(settings)
    family = FAMILIES[config.architecture]
    tensors = tensors_of(family.sources(config, family.gguf_names), format, "float32", seed)
    sizes = {f"{family.gguf}.{key}": value for key, value in gguf_sizes(config).items()}
    told = {"general.architecture": family.gguf, "general.name": path.stem, **sizes}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_gguf(path, {**told, **gguf_tokenizer(settings)}, tensors)
    return sum(weight.data.nbytes for weight in tensors.values())


def gguf_tokenizer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same tokenizer as a GGUF file's metadata say it."""
    normal, control = 1, 3
    special = special_tokens(settings)
    kinds = [control if i in special else normal for i in range(settings["vocab_size"])]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": vocabulary(settings),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": settings["bos_token_id"],
        "tokenizer.ggml.eos_token_id": settings["eos_token_id"],
        "tokenizer.ggml.add_bos_token": False,
    }


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
    parser.add_argument("--gguf", type=Path, metavar="DIR", help="also the three GGUF files, here")
    parser.add_argument("--seed", type=int, default=0, help="of the weights [0]")
    asked = parser.parse_args()
    need("anychip", "tokenizers")
    for folder in filter(None, (asked.folder, asked.gguf)):
        if folder.exists() and any(folder.iterdir()):
            raise SystemExit(f"{folder} is not empty")
    settings = {**COMMON, **SHAPES[asked.shape]}
    size = write_model(settings, asked.folder, asked.seed)
    print(f"{asked.folder}: {size / 1e6:,.0f} MB of weights in bfloat16", flush=True)
    for name, format in GGUF_FORMATS.items() if asked.gguf else ():
        path = asked.gguf / f"{name}.gguf"
        size = write_gguf_file(unscaled(settings), path, format, asked.seed)
        print(f"{path}: {size / 1e6:,.0f} MB of weights", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
