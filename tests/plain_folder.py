"""A Llama as a Hugging Face folder of several files, written with numpy and safetensors alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCAB, SHARDS = 384, 4
INDEX = "model.safetensors.index.json"


def tensors(hidden: int, inner: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama, in the order in which transformers writes them."""
    found: dict[str, tuple[int, ...]] = {"lm_head.weight": (VOCAB, hidden)}
    found["model.embed_tokens.weight"] = (VOCAB, hidden)
    for i in range(layers):
        at = f"model.layers.{i}."
        found[at + "input_layernorm.weight"] = (hidden,)
        found[at + "mlp.down_proj.weight"] = (hidden, inner)
        found[at + "mlp.gate_proj.weight"] = (inner, hidden)
        found[at + "mlp.up_proj.weight"] = (inner, hidden)
        found[at + "post_attention_layernorm.weight"] = (hidden,)
        for name, rows in (("k", hidden // 4), ("o", hidden), ("q", hidden), ("v", hidden // 4)):
            found[f"{at}self_attn.{name}_proj.weight"] = (rows, hidden)
    return {**found, "model.norm.weight": (hidden,)}


def write_folder(folder: Path, hidden: int, inner: int, layers: int, dtype: type) -> Path:
    """A Llama in SHARDS files of about one size; random numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = tensors(hidden, inner, layers)
    total, filled, number = sum(map(np.prod, shapes.values())), 0, 0
    noise, weight_map, shard = np.random.default_rng(1), {}, {}
    for name, shape in shapes.items():
        shard[name] = (noise.standard_normal(shape, np.float32) * 0.02).astype(dtype)
        weight_map[name] = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        filled += int(np.prod(shape))
        if filled >= total * (number + 1) / SHARDS:
            save_file(shard, folder / weight_map[name])
            shard, number = {}, number + 1
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    config = {
        **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB},
        **{"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers},
        **{"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": hidden // 8},
        **{"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
        **{"tie_word_embeddings": False, "hidden_act": "silu", "bos_token_id": 1},
        **{"eos_token_id": 2, "torch_dtype": np.dtype(dtype).name},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
