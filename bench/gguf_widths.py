"""A GGUF model in other widths: BF16.gguf and Q8_0.gguf, which llama.cpp and AnyChip both read.

    .venv/bin/python bench/gguf_widths.py GGUF DIR

Matrices are widened to float32 and rounded to the other format, everything else is copied as it is.
So the files hold the numbers of the source, not better ones: Q8_0 of a 4-bit file has the errors
of four bits. Needs gguf (a test requirement).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from command_line import need

if TYPE_CHECKING:
    from gguf import GGUFReader, GGUFWriter

FORMATS = ("BF16", "Q8_0")
SET_BY_THE_WRITER = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture"}


def write(source: Path, target: Path, format: str) -> int:
    """Write the model whole in one format; returns the bytes of its tensors."""
    from gguf import GGUFReader, GGUFWriter, LlamaFileType

    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    copy_settings(reader, writer, int(LlamaFileType[f"MOSTLY_{format}"]))
    written = 0
    for name, data, kind in converted(reader, format):
        writer.add_tensor(name, data, raw_dtype=kind)
        written += data.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


def copy_settings(reader: GGUFReader, writer: GGUFWriter, file_type: int) -> None:
    """All settings, each of its own type; the file's type is the new one."""
    from gguf import GGUFValueType

    for key, found in reader.fields.items():
        if key in SET_BY_THE_WRITER:
            continue
        kind = found.types[0]
        inner = found.types[-1] if kind == GGUFValueType.ARRAY else None
        value = file_type if key == "general.file_type" else found.contents()
        writer.add_key_value(key, value, kind, sub_type=inner)


def converted(reader: GGUFReader, format: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, bytes and type of each tensor: matrices in the format, vectors as they are."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize, quantize

    wanted = GGMLQuantizationType[format]
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            yield tensor.name, tensor.data, tensor.tensor_type
        else:
            floats = dequantize(tensor.data, tensor.tensor_type)
            yield tensor.name, quantize(floats, wanted), wanted


def main() -> int:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, metavar="GGUF")
    parser.add_argument("folder", type=Path, metavar="DIR")
    asked = parser.parse_args()
    need("gguf")
    if not asked.source.is_file():
        raise SystemExit(f"no file {asked.source}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    for format in FORMATS:
        target = asked.folder / f"{format}.gguf"
        written = write(asked.source, target, format)
        print(f"{target}: {written / 1e6:,.0f} MB of weights", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
