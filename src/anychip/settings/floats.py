"""Other spellings of element types."""

from collections.abc import Mapping

FLOATS: Mapping[str, str] = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
}

SCALED: Mapping[str, str] = {
    "fp8": "float8_e4m3",
    "fp8_e4m3": "float8_e4m3",
    "float8_e4m3fn": "float8_e4m3",
}
"""Of one byte an element, with scales: what SGLang, vLLM and torch call it."""
