"""GGUF: equal to the gguf package's reading; broken files are refused within bounded memory."""

from __future__ import annotations

import random
import struct
import tracemalloc

import numpy as np
import pytest

import tiny_models as tiny
from anychip.model.checkpoint import open_checkpoint
from anychip.model.errors import CheckpointError, UnsupportedModel
from anychip.model.gguf import GgufFile, read_gguf_metadata

U32, F32, STRING, ARRAY = 4, 6, 8, 9


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def tensor(name, dims=(4,), kind=0, offset=0):
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def header(*, keys=(), tensors=(), version=3, key_count=None, tensor_count=None, magic=b"GGUF"):
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    return magic + struct.pack("<IQQ", version, *counts) + b"".join([*keys, *tensors])


def opened(tmp_path, raw, data=b"\0" * 256):
    path = tmp_path / "x.gguf"
    path.write_bytes(raw + b"\0" * (-len(raw) % 32) + data)
    return GgufFile(path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return tiny.make_gguf(tmp_path_factory.mktemp("gguf"), "q4_1", embedding_format="q8_0")


def test_metadata_and_tensors_equal_the_gguf_packages(sound):
    from gguf import GGUFReader

    theirs = GGUFReader(sound)
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert read_gguf_metadata(sound) == fields
    file = GgufFile(sound)
    assert list(file.tensors) == [t.name for t in theirs.tensors]
    for t in theirs.tensors:
        entry = file.tensors[t.name]
        assert entry.shape == tuple(int(n) for n in reversed(t.shape))
        assert (entry.offset, entry.nbytes) == (t.data_offset, t.n_bytes)
        np.testing.assert_array_equal(
            np.frombuffer(file.read(t.name).data, np.uint8), t.data.reshape(-1).view(np.uint8)
        )


def test_every_value_type(tmp_path):
    from gguf import GGUFReader, GGUFWriter

    path = tmp_path / "x.gguf"
    writer = GGUFWriter(str(path), "llama")
    for name, value in [("uint8", 250), ("int8", -3), ("uint16", 65000), ("int16", -9)]:
        getattr(writer, f"add_{name}")(name, value)
    for name, value in [("uint64", 1 << 60), ("int64", -1), ("float64", 0.1), ("float32", 0.5)]:
        getattr(writer, f"add_{name}")(name, value)
    writer.add_bool("bool", True)
    writer.add_string("string", "žluť")
    writer.add_array("strings", ["a", "", "ß"])
    writer.add_array("floats", [1.5, 2.5])
    writer.add_array("bools", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    fields = GGUFReader(path).fields
    expected = {k: f.contents() for k, f in fields.items() if not k.startswith("GGUF.")}
    read = read_gguf_metadata(path)
    assert read == expected
    assert read["bools"] == [True, False] and read["bool"] is True


def test_version_2_is_read(tmp_path):
    file = opened(tmp_path, header(version=2, tensors=[tensor("a")]))
    assert file.tensors["a"].shape == (4,)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (header(magic=b"GGML"), "not a GGUF file"),
        (header(version=1), "version '1' is not supported; supported: 2, 3"),
        (header(version=4), "version '4'"),
        (header(version=3 << 24), "big-endian"),
        (header(keys=[key("split.count", U32, struct.pack("<I", 3))]), "one of 3 parts"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, raw, message):
    with pytest.raises(CheckpointError, match=message):
        opened(tmp_path, raw)


HUGE = struct.pack("<Q", 1 << 63)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (header(key_count=1 << 62), "key count is"),
        (header(key_count=60_000), "more than the file can hold"),
        (header(tensor_count=1 << 62), "tensor count is"),
        (header(key_count=1) + HUGE, "a key is"),
        (header(keys=[text("k") + struct.pack("<I", STRING) + HUGE]), "value of 'k' is"),
        (header(keys=[key("k", ARRAY, struct.pack("<I", U32) + HUGE)]), "array 'k' is"),
        (header(keys=[key("k", ARRAY, struct.pack("<IQ", U32, 1 << 20))]), "file can hold"),
        (header(keys=[key("k", ARRAY, struct.pack("<IQ", U32, 200))]), "needs 800 bytes"),
        (header(keys=[key("k", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "array of arrays"),
        (header(keys=[key("k", 77, b"")]), "unknown value type 77"),
        (header(keys=[key("k", STRING, text(b"\xff\xfe"))]), "not UTF-8"),
        (header(keys=[key("k", U32, b"1234"), key("k", U32, b"1234")]), "'k' appears twice"),
        (header(tensors=[tensor("a"), tensor("a", offset=32)]), "'a': .*named twice"),
        (header(tensors=[tensor("a"), tensor("b", offset=0)]), "shares bytes"),
        (header(tensors=[tensor("a", offset=1 << 50)]), "'a': .*cut off"),
        (header(tensors=[tensor("a", offset=(1 << 64) - 32)]), "'a': .*cut off"),
        (header(tensors=[tensor("a", (1 << 40,) * 4)]), "'a': .*cut off"),
        (header(tensors=[tensor("a", (1 << 41,))]), "impossible shape"),
        (header(tensors=[tensor("a", (0,))]), "impossible shape"),
        (header(tensors=[tensor("a", ())]), "0 dimensions"),
        (header(tensors=[tensor("a", (1,) * 5)]), "5 dimensions"),
        (header(tensors=[tensor("a", offset=4)]), "not a multiple of 32"),
        (header(tensors=[tensor("a", (33, 2), kind=8)]), "whole blocks of 32"),
        (
            header(keys=[key("general.alignment", U32, struct.pack("<I", 0))]),
            "general.alignment is 0",
        ),
    ],
)
def test_broken_headers(tmp_path, raw, message):
    with pytest.raises(CheckpointError, match=message):
        opened(tmp_path, raw)


@pytest.mark.parametrize(
    ("kind", "name"), [(9, "q8_1"), (15, "q8_K"), (28, "f64"), (99, "type 99")]
)
def test_other_formats_are_refused_by_name_when_needed(tmp_path, kind, name):
    raw = header(tensors=[tensor("a", (256,), kind), tensor("b", (4,), offset=160)])
    file = opened(tmp_path, raw)
    assert file.read("b").shape == (4,)
    with pytest.raises(UnsupportedModel, match=f"'a': format .*{name}.*supported.*q8_0, q4_0"):
        file.read("a")


def test_every_truncation_is_refused(tmp_path, sound):
    raw = sound.read_bytes()
    path = tmp_path / "x.gguf"
    ends = [*range(40), *range(40, len(raw), 997), len(raw) - 1]
    for end in ends:
        path.write_bytes(raw[:end])
        with pytest.raises(CheckpointError):
            GgufFile(path)


def test_flipped_header_bytes_only_give_checkpoint_errors(tmp_path, sound):
    raw = sound.read_bytes()
    end = min(entry.offset for entry in GgufFile(sound).tensors.values())
    path = tmp_path / "x.gguf"
    rng = random.Random(11)
    refused = 0
    tracemalloc.start()
    for turn in range(500):
        broken = bytearray(raw)
        zone = 2500 if turn % 2 else end  # settings come first, then the long vocabulary
        for _ in range(rng.randint(1, 6)):
            broken[rng.randrange(zone)] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
        path.write_bytes(broken)
        try:
            checkpoint = open_checkpoint(path)
            for source in checkpoint.sources:
                checkpoint.read(source)
        except CheckpointError:
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 100
    assert peak < 32 << 20


def test_a_directory_or_missing_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.gguf"):
        with pytest.raises(CheckpointError, match="cannot be read"):
            read_gguf_metadata(path)
