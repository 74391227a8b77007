"""One operator call in a file: what it was given, what the chip gave, and where that was seen.

An .npz file that `numpy.load(file, allow_pickle=False)` opens: arrays, and `call.json` beside them.
Reading one runs nothing, takes no more memory than the file has bytes, and refuses what is damaged.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from anychip.contract.cache import spec_over
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.fingerprint import fingerprint
from anychip.contract.formats import PLAIN_FORMATS, is_quantized
from anychip.contract.formats import format_bytes as weight_bytes
from anychip.contract.signature import Arg, ArgKind, Attr, Spec, infer_outputs
from anychip.contract.tensor import Shape, TensorSpec, contiguous_strides
from anychip.contract.weights import HostWeight, WeightSpec
from anychip.hostops import NUMPY_DTYPES, dtype_of
from anychip.ops.limits import ROUNDOFF
from anychip.ops.oracle.arrays import Array, CacheArrays, latent_arrays

VERSION = 1
MOST_HEADER_BYTES = 2**20
MOST_MEMBERS = 256
MOST_NPY_HEADER_BYTES = 4096
MOST_EXTENT = 2**33
"""Bytes that a strided array may span: a damaged stride must not ask for the whole memory."""

_HEADER = "call.json"
_NPY = b"\x93NUMPY"
_DAMAGE = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    NotImplementedError,  # a compression or a version of zip that nobody wrote here
    OverflowError,
    RuntimeError,  # zipfile's word for an encrypted member
    ValueError,
    msgspec.MsgspecError,
    struct.error,
)


class SavedCallError(ValueError):
    """The file cannot be used as a saved call; the text names it and says why."""


@dataclass(frozen=True, eq=False)
class SavedCall:
    """A call as it was before it ran, and what came of it.

    inputs: arrays by argument (strides as the chip saw them), CacheArrays of the touched pages
    for a cache, with indices that count those pages. parts: weights in the checkpoint's own
    format; a weight that is not there is a dense array among the inputs. outputs: every output
    and every written input, as the chip left them. dtype: what float results are held in.
    seen_on: chip, versions and the place in the run, by name.
    """

    op: str
    attrs: Mapping[str, Any]
    inputs: Mapping[str, Array | CacheArrays | None]
    outputs: Mapping[str, Array | CacheArrays]
    dtype: DType
    implementation: str
    verdict: str
    parts: Mapping[str, tuple[HostWeight, ...]] = field(default_factory=dict)
    seen_on: Mapping[str, str] = field(default_factory=dict)


class _Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array of the file. strides: in elements, empty where it is row-major."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One part of a weight; its bytes are a member of the file."""

    format: str
    shape: tuple[int, ...]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`call.json`. signature: the operator's fingerprint. Floats of attrs are texts: inf too."""

    version: int
    op: str
    signature: str
    attrs: dict[str, bool | int | str | list[int]]
    arrays: dict[str, _Held]
    parts: dict[str, list[_Part]]
    dtype: DType
    implementation: str
    verdict: str
    seen_on: dict[str, str]


def save(path: Path, call: SavedCall) -> None:
    """Write a new file that its owner alone may read. Raises OSError; nothing is left then."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            _write(archive, call)
    except BaseException:
        path.unlink()
        raise


def _write(archive: zipfile.ZipFile, call: SavedCall) -> None:
    arrays = dict(_named_arrays("in", call.inputs)) | dict(_named_arrays("out", call.outputs))
    header = _Header(
        version=VERSION,
        op=call.op,
        signature=fingerprint(CATALOGUE[call.op]),
        attrs={a.name: _attr_out(a, call.attrs[a.name]) for a in CATALOGUE[call.op].attrs},
        arrays={name: _held(array) for name, array in arrays.items()},
        parts={n: [_Part(p.format, p.shape) for p in ps] for n, ps in call.parts.items()},
        dtype=call.dtype,
        implementation=call.implementation,
        verdict=call.verdict,
        seen_on=dict(call.seen_on),
    )
    archive.writestr(_HEADER, msgspec.json.format(msgspec.json.encode(header)))
    for name, array in arrays.items():
        _write_array(archive, name, array)
    for name, parts in call.parts.items():
        for index, part in enumerate(parts):
            raw = np.frombuffer(part.data, np.uint8)
            _write_array(archive, f"part.{name}.{index}", raw)


def _named_arrays(
    prefix: str, values: Mapping[str, Array | CacheArrays | None]
) -> Iterator[tuple[str, Array]]:
    for name, value in values.items():
        if isinstance(value, CacheArrays):
            yield f"{prefix}.{name}.k", value.k
            if value.latent:
                yield f"{prefix}.{name}.latent", np.array([value.latent], np.int32)
            else:
                yield f"{prefix}.{name}.v", value.v
        elif value is not None:
            yield f"{prefix}.{name}", value


def _held(array: Array) -> _Held:
    steps = tuple(s // array.itemsize for s in array.strides)
    plain = array.size == 0 or array.flags.c_contiguous
    return _Held(dtype_of(array), array.shape, () if plain else steps)


def _write_array(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    plain = np.ascontiguousarray(array).reshape(array.shape)
    if dtype_of(plain) is DType.BFLOAT16:
        plain = plain.view(np.uint16)  # .npy has no name for it
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, plain, allow_pickle=False)


def _attr_out(attr: Attr, value: Any) -> bool | int | str | list[int]:
    if attr.type == "float":
        return repr(float(value))
    if attr.type == "shape":
        return [int(size) for size in value]
    if attr.type == "bool":
        return bool(value)
    return int(value) if attr.type == "int" else str(value)


def load(path: Path) -> SavedCall:
    """Read a file that `save` wrote. Raises SavedCallError: no such file, damaged, foreign."""
    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive, size).call()
    except OSError as error:
        raise SavedCallError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise SavedCallError(
            f"{path}: is no saved call, or is damaged ({error or type(error).__name__}); "
            "--check-ops writes such files"
        ) from error


class _Reader:
    """Takes a file apart, believing nothing that it says of itself."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        """size: bytes of the file. Members are stored as they are, so they must fit into it."""
        self._archive = archive
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise ValueError(f"{len(members)} members, at most {MOST_MEMBERS} are read")
        if any(m.compress_type != zipfile.ZIP_STORED for m in members):
            raise ValueError("a compressed member; they are stored as they are")
        if sum(m.file_size for m in members) > size:
            raise ValueError("its members are larger than the file")
        self._header = self._read_header()

    def _read_header(self) -> _Header:
        if self._archive.getinfo(_HEADER).file_size > MOST_HEADER_BYTES:
            raise ValueError(f"{_HEADER} is over {MOST_HEADER_BYTES} bytes")
        raw = self._archive.read(_HEADER)
        version = msgspec.json.decode(raw, type=dict[str, Any]).get("version")
        if version != VERSION:
            raise ValueError(f"version {version!r}, this anychip reads version {VERSION}")
        header = msgspec.json.decode(raw, type=_Header)
        if header.op not in CATALOGUE:
            raise ValueError(f"no operator '{header.op}' in the catalogue")
        if header.signature != fingerprint(CATALOGUE[header.op]):
            raise ValueError(f"the signature of '{header.op}' has changed since it was saved")
        weights = [a.name for a in CATALOGUE[header.op].inputs if a.kind is ArgKind.WEIGHT]
        if strange := sorted(set(header.parts) - set(weights)):
            raise ValueError(f"'{strange[0]}' is no weight of '{header.op}'")
        if header.dtype not in ROUNDOFF:
            raise ValueError(f"results in {header.dtype.value}, which is no float dtype")
        return header

    def call(self) -> SavedCall:
        header, signature = self._header, CATALOGUE[self._header.op]
        attrs = {a.name: _attr_in(a, header.attrs[a.name]) for a in signature.attrs}
        parts = {name: self._weight(name) for name in header.parts}
        inputs = {a.name: self._value("in", a.name) for a in signature.inputs}
        specs = {a.name: _spec(a, inputs[a.name], parts.get(a.name)) for a in signature.inputs}
        found = infer_outputs(signature, specs, attrs)
        shapes = {name: _shape(inputs[name]) for name in signature.writes}
        shapes |= {a.name: spec.shape for a, spec in zip(signature.outputs, found, strict=True)}
        outputs = {name: self._result(name, shape) for name, shape in shapes.items()}
        return SavedCall(
            op=header.op,
            attrs=attrs,
            inputs={n: v for n, v in inputs.items() if n not in parts},
            outputs=outputs,
            dtype=header.dtype,
            implementation=header.implementation,
            verdict=header.verdict,
            parts=parts,
            seen_on=header.seen_on,
        )

    def _result(self, name: str, shape: Shape | None) -> Array | CacheArrays:
        found = self._value("out", name)
        if found is None or _shape(found) != shape:
            raise ValueError(f"the result '{name}' has shape {_shape(found)}, not {shape}")
        return found

    def _value(self, prefix: str, name: str) -> Array | CacheArrays | None:
        held = self._header.arrays
        if f"{prefix}.{name}.k" in held:
            if f"{prefix}.{name}.latent" in held:
                return self._latent(f"{prefix}.{name}")
            k, v = (self._array(f"{prefix}.{name}.{half}") for half in ("k", "v"))
            if k.ndim != 4 or k.shape != v.shape or k.dtype != v.dtype:
                raise ValueError(f"'{name}' holds keys {k.shape} and values {v.shape}")
            return CacheArrays(k, v)
        return self._array(f"{prefix}.{name}") if f"{prefix}.{name}" in held else None

    def _latent(self, name: str) -> CacheArrays:
        k, latent = self._array(f"{name}.k"), self._array(f"{name}.latent")
        if k.ndim != 4 or latent.shape != (1,):
            raise ValueError(f"'{name}' holds vectors {k.shape} and sizes {latent.shape}")
        return latent_arrays(k, int(latent[0]))

    def _array(self, name: str) -> Array:
        held = self._header.arrays[name]
        dtype = NUMPY_DTYPES[held.dtype]
        raw = self._bytes(name, _size(name, held.shape) * dtype.itemsize)
        array = np.frombuffer(raw, dtype).reshape(held.shape)
        return _spread(name, array, held.strides) if held.strides else array

    def _weight(self, name: str) -> tuple[HostWeight, ...]:
        return tuple(
            self._part(f"part.{name}.{index}", part)
            for index, part in enumerate(self._header.parts[name])
        )

    def _part(self, name: str, part: _Part) -> HostWeight:
        if part.format not in PLAIN_FORMATS and not is_quantized(part.format):
            raise ValueError(f"'{name}' has the unknown format '{part.format}'")
        _size(name, part.shape)
        raw = self._bytes(name, weight_bytes(part.format, part.shape))
        return HostWeight(part.format, part.shape, memoryview(raw))

    def _bytes(self, name: str, nbytes: int) -> bytes:
        """The last `nbytes` of a .npy member: what comes before is a header that says the same."""
        raw = self._archive.read(f"{name}.npy")
        before = len(raw) - nbytes
        if not raw.startswith(_NPY) or not len(_NPY) < before <= MOST_NPY_HEADER_BYTES:
            raise ValueError(f"'{name}' needs {nbytes} bytes, its member has {len(raw)}")
        return raw[before:]


def _shape(value: Array | CacheArrays | None) -> Shape | None:
    array = value.k if isinstance(value, CacheArrays) else value
    return None if array is None else array.shape


def _size(name: str, shape: Shape) -> int:
    if any(n < 0 for n in shape):
        raise ValueError(f"'{name}' has shape {shape}")
    return math.prod(shape)


def _spread(name: str, array: Array, strides: Shape) -> Array:
    """The same elements with strides of their own; what lies between is poison."""
    if len(strides) != array.ndim or any(s < 0 for s in strides) or array.size == 0:
        raise ValueError(f"'{name}' of shape {array.shape} has strides {strides}")
    last = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    nbytes = (last + 1) * array.itemsize
    if nbytes > MOST_EXTENT:
        raise ValueError(f"'{name}' spans {nbytes} bytes, at most {MOST_EXTENT} are taken")
    base = np.full(nbytes, 0xFF, np.uint8).view(array.dtype)
    steps = [s * array.itemsize for s in strides]
    view = np.lib.stride_tricks.as_strided(base, array.shape, steps)
    view[...] = array
    return view


def _attr_in(attr: Attr, value: bool | int | str | list[int]) -> Any:
    kinds: dict[str, type] = {"float": str, "shape": list, "bool": bool, "int": int}
    if type(value) is not kinds.get(attr.type, str):
        raise ValueError(f"attribute '{attr.name}' is {value!r}, not a {attr.type}")
    if isinstance(value, list):
        return tuple(value)
    return float(value) if attr.type == "float" else value


def _spec(
    arg: Arg, value: Array | CacheArrays | None, parts: tuple[HostWeight, ...] | None
) -> Spec | None:
    """What the signature looks at, to tell at once that a file makes no sense."""
    if parts:
        shape = (sum(p.shape[0] for p in parts), *parts[0].shape[1:])
        nbytes = sum(p.data.nbytes for p in parts)
        return WeightSpec(parts[0].format, shape, nbytes, dense=True)
    if isinstance(value, CacheArrays):
        return spec_over(value.k.shape, dtype_of(value.k), latent=value.latent)
    if value is None:
        return None
    dtype = dtype_of(value)
    if arg.kind is ArgKind.WEIGHT:
        return WeightSpec(dtype.value, value.shape, value.nbytes, dense=True)
    return TensorSpec(value.shape, dtype, contiguous_strides(value.shape))
