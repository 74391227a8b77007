"""Tiny Llama checkpoints, made on the spot: a folder as Hugging Face writes it, or a GGUF file.

The same seed gives the same weights in both. Random, but large enough that greedy output varies.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import LlamaForCausalLM

VOCAB = 384
HIDDEN = 64
LAYERS = 2
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 16
INTERMEDIATE = 128
CONTEXT = 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = 1, 2
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = (
    "The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore.",
    "A request enters the server, becomes tokens, and the engine answers one step at a time.",
    "When the memory runs out, the scheduler evicts pages and then retracts a request.",
    "In the beginning there was one chip; there are many chips now, and the core names none.",
    "user: hello there, how are you today? assistant: I am fine, thank you for asking.",
    "def step(self): plan = self.scheduler.plan(); return self.scheduler.commit(plan)",
)


@functools.lru_cache(maxsize=1)
def tiny_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with VOCAB entries; ids 0..2 are SPECIAL."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@functools.lru_cache(maxsize=16)
def _cached_model(settings: str) -> LlamaForCausalLM:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    chosen: dict[str, Any] = json.loads(settings)
    seed = chosen.pop("seed")
    dtype = getattr(torch, chosen.pop("dtype"))
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        rms_norm_eps=1e-5,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=0,
        **chosen,
    )
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter.ndim == 1 and bool((parameter == 1).all())
            parameter.copy_(1 + 0.1 * noise if is_norm else 0.3 * noise)
    return model.to(dtype).eval()


def make_hf_model(
    *,
    dtype: str = "float32",
    tied: bool = True,
    rope_scaling: dict[str, Any] | None = None,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    head_dim: int = HEAD_DIM,
    seed: int = 0,
) -> LlamaForCausalLM:
    """The transformers model whose weights the files hold; cached, so do not change it."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, **(rope_scaling or {})}
    chosen = {
        "dtype": dtype,
        "tie_word_embeddings": tied,
        "rope_parameters": rope,
        "attention_bias": attention_bias,
        "mlp_bias": mlp_bias,
        "head_dim": head_dim,
        "seed": seed,
    }
    return _cached_model(json.dumps(chosen, sort_keys=True))


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json, with a chat template."""
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "pad_token": SPECIAL[0],
        "unk_token": SPECIAL[0],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def make_hf_folder(folder: Path, *, shards: int = 1, **model_options: Any) -> Path:
    """Write a Hugging Face folder (about `shards` weight files); options as make_hf_model's."""
    folder.mkdir(parents=True, exist_ok=True)
    model = make_hf_model(**model_options)
    nbytes = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=-(-nbytes // shards) + 1024)
    write_tokenizer(folder)
    return folder


def make_gguf(
    folder: Path,
    format: str = "f32",
    *,
    embedding_format: str | None = None,
    rope_scaling: dict[str, Any] | None = None,
    **model_options: Any,
) -> Path:
    """Write folder/tiny-FORMAT.gguf as llama.cpp's converter lays it out.

    format: f32 f16 bf16 q8_0 q4_0 q4_1 for the matrices (vectors are f32).
    """
    from gguf import GGUFWriter

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tiny-{format}.gguf"
    model = make_hf_model(rope_scaling=rope_scaling, **model_options)
    writer = GGUFWriter(str(path), "llama")
    _write_settings(writer, rope_scaling)
    write_gguf_tokenizer(writer)
    for name, array in gguf_tensors(model).items():
        is_table = name in ("token_embd.weight", "output.weight")
        add_tensor(writer, name, array, (embedding_format if is_table else None) or format)
    if rope_scaling and rope_scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope_scaling))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The model's weights in float32 under their GGUF names, query and key rows interleaved."""
    outside = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    tensors = {}
    for name, parameter in model.named_parameters():
        array = parameter.detach().float().numpy()
        module, kind = name.removeprefix("model.").rsplit(".", 1)
        if module.startswith("layers."):
            layer, inner = module.removeprefix("layers.").split(".", 1)
            module = f"blk.{layer}.{GGUF_NAMES[inner]}"
            if inner.endswith(("q_proj", "k_proj")):
                array = interleave(array, HEADS if inner.endswith("q_proj") else KV_HEADS)
        else:
            module = outside[module]
        tensors[f"{module}.{kind}"] = np.ascontiguousarray(array)
    return tensors


def interleave(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows [first half, second half] of each head -> pairs, as GGUF's llama stores q and k."""
    split = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return split.swapaxes(1, 2).reshape(array.shape)


def llama3_factors(scaling: dict[str, Any]) -> np.ndarray:
    """What llama.cpp's converter writes as rope_freqs.weight: divisors of each frequency."""
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    context = scaling["original_max_position_embeddings"]
    factors = []
    for i in range(0, HEAD_DIM, 2):
        wavelength = 2 * math.pi * 10000.0 ** (i / HEAD_DIM)
        smooth = (context / wavelength - low) / (high - low)
        smooth = min(max(smooth, 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def _write_settings(writer: Any, rope_scaling: dict[str, Any] | None) -> None:
    from gguf import RopeScalingType

    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    if rope_scaling and rope_scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope_scaling["factor"])


def write_gguf_tokenizer(writer: Any) -> None:
    """The tiny tokenizer and its template as GGUF metadata."""
    described = json.loads(tiny_tokenizer().to_str())
    vocab = described["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in described["model"]["merges"]])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def add_tensor(writer: Any, name: str, array: np.ndarray, format: str) -> None:
    """One tensor of a GGUF file in a format of gguf-py's, in lower case."""
    from gguf import GGMLQuantizationType, quants

    if array.ndim == 1 or format == "f32":
        writer.add_tensor(name, array)
        return
    kind = GGMLQuantizationType[format.upper()]
    writer.add_tensor(name, quants.quantize(array, kind), raw_dtype=kind)
