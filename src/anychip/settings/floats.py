"""Other spellings of element types."""

from collections.abc import Mapping

FLOATS: Mapping[str, str] = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
}
