"""A GGUF model as a folder of safetensors in bfloat16, which vLLM and transformers can serve.

    .venv/bin/python bench/bf16_folder.py GGUF FOLDER

transformers reads the file (its blocks widened), the weights are rounded to bfloat16 and saved.
Needs the test requirements (torch, transformers, accelerate, gguf). The tokenizer that
transformers makes of a GGUF file can split numbers another way than the model's own: compare
engines by token ids, as bench/peers.py does.
"""

from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path

from command_line import need


def convert(source: Path, folder: Path) -> None:
    """Write config.json, model.safetensors and the tokenizer. Raises what transformers raises."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = {"gguf_file": source.name}
    read = AutoModelForCausalLM.from_pretrained(source.parent, **file, dtype=torch.float32)
    config = copy.deepcopy(read.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # it tells of blocks that are widened now
    # A model that was read from GGUF refuses to be saved: a fresh one takes its numbers.
    net = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    net.load_state_dict(read.state_dict())
    net.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, **file).save_pretrained(folder)


def main() -> int:
    """Convert. 1 where the folder is not empty."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, metavar="GGUF")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    need("torch", "transformers", "accelerate", "gguf")
    source: Path = asked.source.expanduser().absolute()
    if not source.is_file():
        raise SystemExit(f"no file {source}")
    if asked.folder.exists() and any(asked.folder.iterdir()):
        raise SystemExit(f"{asked.folder} is not empty")
    convert(source, asked.folder)
    size = sum(file.stat().st_size for file in asked.folder.glob("*.safetensors"))
    print(f"{asked.folder}: {size / 1e6:,.0f} MB of weights in bfloat16")
    return 0


if __name__ == "__main__":
    sys.exit(main())
