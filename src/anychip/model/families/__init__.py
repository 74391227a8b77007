"""Every model family, and which of them a checkpoint is. A family is one short file here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anychip.model.config import ModelConfig
from anychip.model.errors import unsupported
from anychip.model.families.deepseek import DEEPSEEK2, DEEPSEEK3
from anychip.model.families.gemma import GEMMA
from anychip.model.families.gemma2 import GEMMA2
from anychip.model.families.gemma3 import GEMMA3
from anychip.model.families.glm4 import GLM, GLM4
from anychip.model.families.gpt_oss import GPT_OSS
from anychip.model.families.granite import GRANITE
from anychip.model.families.llama import LLAMA
from anychip.model.families.mistral import MISTRAL
from anychip.model.families.mixtral import MIXTRAL
from anychip.model.families.olmo2 import OLMO2
from anychip.model.families.phi3 import PHI3
from anychip.model.families.qwen2 import QWEN2
from anychip.model.families.qwen3 import QWEN3
from anychip.model.families.qwen3_next import QWEN3_NEXT
from anychip.model.families.qwen_moe import QWEN2_MOE, QWEN3_MOE
from anychip.model.families.smollm3 import SMOLLM3
from anychip.model.family import Family
from anychip.model.fields import Fields

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        LLAMA,
        MISTRAL,
        MIXTRAL,
        QWEN2,
        QWEN3,
        GEMMA,
        GEMMA2,
        GEMMA3,
        OLMO2,
        GRANITE,
        SMOLLM3,
        QWEN2_MOE,
        QWEN3_MOE,
        GPT_OSS,
        QWEN3_NEXT,
        PHI3,
        GLM,
        GLM4,
        DEEPSEEK2,
        DEEPSEEK3,
    )
}
"""By name, in the order in which people are told of them."""


def config_from_hf(settings: Mapping[str, Any]) -> ModelConfig:
    """From a parsed config.json, of transformers 4 or 5. Raises CheckpointError."""
    return _hf_family(settings).hf_config(Fields(settings, "config.json"))


def config_from_gguf(metadata: Mapping[str, Any]) -> ModelConfig:
    """From GGUF metadata. Raises CheckpointError.

    What only the tensors tell (tied, biases, dtype, rope factors) is left at its default.
    """
    name = metadata.get("general.architecture")
    read = Fields(metadata, "GGUF metadata", f"{name}.")
    of_name = [f for f in FAMILIES.values() if f.gguf and f.gguf == name]
    for family in sorted(of_name, key=lambda f: not f.gguf_key):
        marked = not family.gguf_key or read.integer(family.gguf_key, 0) > 0
        if marked and family.gguf_config:
            return family.gguf_config(read)
    known = dict.fromkeys(f.gguf for f in FAMILIES.values() if f.gguf)
    raise unsupported("architecture", name, known)


def _hf_family(settings: Mapping[str, Any]) -> Family:
    names = settings.get("architectures") or [settings.get("model_type")]
    names = names if isinstance(names, list) else [names]
    for family in FAMILIES.values():
        if names[0] in (family.hf_class, family.hf_type):
            return family
    raise unsupported("architecture", names[0], (f.hf_class for f in FAMILIES.values()))
