"""Settings of the model: which one, and how it is read."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared
from anychip.settings.floats import FLOATS

TOOL_FORMAT_NAMES = (
    "hermes",
    "llama3",
    "mistral",
    "deepseekv3",
    "deepseekv31",
    "pythonic",
    "gpt-oss",
)
MADE_AT_LOAD = ("w8a8_int8", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
QUANTIZED_BEFORE = ("gptq", "awq", "compressed-tensors", "fp8", "mxfp4", "gguf")
"""How a model may have been quantized, which is then only checked."""
REASONING_FORMAT_NAMES = ("deepseek-r1", "qwen3", "gpt-oss")

# Other engines' spellings of the same.
_TOOL_SPELLINGS = {
    "qwen": "hermes",
    "qwen25": "hermes",
    "llama3_json": "llama3",
    "deepseek_v3": "deepseekv3",
    "deepseek_v31": "deepseekv31",
    "llama4_pythonic": "pythonic",
    "gpt_oss": "gpt-oss",
    "openai": "gpt-oss",
}
_REASONING_SPELLINGS = {
    "deepseek_r1": "deepseek-r1",
    "qwen3-thinking": "qwen3",
    "gpt_oss": "gpt-oss",
    "openai_gptoss": "gpt-oss",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Which model, in which types."""

    model_path: str | None = declared(
        None,
        Flag(
            ("--model-path", "--model"),
            "model",
            "folder of safetensors, a .gguf file, or a hub's ORG/NAME, ORG/NAME@REVISION,"
            " ORG/NAME:Q4_K_M [the demo model]",
            "MODEL",
            differs="required",
        ),
    )
    model_source: str = declared(
        "huggingface",
        Flag(
            ("--model-source",),
            "model",
            "hub that ORG/NAME is fetched from; SGLANG_USE_MODELSCOPE=1 chooses too",
            "HUB",
            choices=("huggingface", "modelscope"),
        ),
    )
    revision: str | None = declared(
        None,
        Flag(
            ("--revision",),
            "model",
            "branch, tag or commit of ORG/NAME [the hub's default]",
            "REVISION",
        ),
    )
    download_dir: str | None = declared(
        None,
        Flag(
            ("--download-dir",),
            "model",
            "cache for models of a hub [the hub's own: HF_HUB_CACHE or MODELSCOPE_CACHE]",
            "DIR",
        ),
    )
    tokenizer_path: str | None = declared(
        None,
        Flag(
            ("--tokenizer-path",),
            "model",
            "folder or file of the tokenizer, or a hub's ORG/NAME [the model]",
            "PATH",
        ),
    )
    load_format: str = declared(
        "auto",
        Flag(
            ("--load-format",),
            "model",
            "format of the weights",
            "FORMAT",
            choices=("auto", "safetensors", "gguf"),
            way_out="convert the weights to safetensors or GGUF",
        ),
    )
    context_length: int | None = declared(
        None,
        Flag(("--context-length",), "model", "longest sequence, tokens [the model's]", low=2),
    )
    dtype: str = declared(
        "auto",
        Flag(
            ("--dtype",),
            "model",
            "compute type; auto: float32 for float32 models, else the chip's first",
            "TYPE",
            choices=("auto", "float32", "bfloat16", "float16"),
            spelled=FLOATS,
            differs="auto is the model's own",
        ),
    )
    quantization: str | None = declared(
        None,
        Flag(
            ("--quantization",),
            "model",
            "linears become this at load, or must be it already [as it is]",
            "FORMAT",
            choices=(*MADE_AT_LOAD, *QUANTIZED_BEFORE),
            spelled={"int8": "w8a8_int8", "w8a8": "w8a8_int8"},
            way_out="have others made by their own tools, and leave this out",
            differs="read only",
        ),
    )
    chat_template: str | None = declared(
        None,
        Flag(("--chat-template",), "model", "Jinja file for chat [the model's]", "FILE"),
    )
    tool_call_parser: str = declared(
        "auto",
        Flag(
            ("--tool-call-parser",),
            "model",
            "format of tool calls in answers; auto: the chat template's",
            "FORMAT",
            choices=("auto", "none", *TOOL_FORMAT_NAMES),
            spelled=_TOOL_SPELLINGS,
            differs="none",
        ),
    )
    reasoning_parser: str = declared(
        "auto",
        Flag(
            ("--reasoning-parser",),
            "model",
            "format of reasoning in answers; auto: the chat template's",
            "FORMAT",
            choices=("auto", "none", *REASONING_FORMAT_NAMES),
            spelled=_REASONING_SPELLINGS,
            differs="none",
        ),
    )
