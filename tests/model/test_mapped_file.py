"""What a mapped checkpoint takes of this process's memory, by the kernel's own account."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

import tiny_models as tiny
from anychip.model.checkpoint import open_checkpoint
from anychip.model.mapped import MappedFile

MIB = 1 << 20
pytestmark = pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="no madvise here")


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory; 0 where it is not mapped."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = words[-1] == str(path)
        elif inside and words[0] == "Rss:":
            found += int(words[1]) * 1024
    return found


def test_what_was_read_is_given_back_and_can_be_read_again(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (8 * MIB // 256))
    file = MappedFile(path)
    view = file.data[MIB : 5 * MIB]
    kept = bytes(view)
    assert resident(path) >= 4 * MIB
    file.give_back()
    assert resident(path) == 0
    assert bytes(view) == kept, "a view stays valid"
    file.close()
    file.give_back()  # nothing is left to give back
    del view
    assert resident(path) == 0


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_gives_all_of_its_files_back(tmp_path, shards):
    checkpoint = open_checkpoint(tiny.make_hf_folder(tmp_path, shards=shards))
    files = sorted(tmp_path.glob("*.safetensors"))
    for source in checkpoint.sources:
        for part in checkpoint.read(source):
            bytes(part.data)
    assert all(resident(file) for file in files)
    checkpoint.give_back()
    assert files and not any(resident(file) for file in files)
