"""The struct of a call, in Python and in C."""

from __future__ import annotations

import subprocess

import numpy as np

from anychip.contract.cache import HND, CacheGroup, CacheSpec, CacheView
from anychip.contract.catalogue import CATALOGUE
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, CallSpec
from anychip.contract.tensor import Buffer, IndexPair, Tensor, TensorSpec
from anychip.sdkbase import calls
from anychip.sdkbase.build import NATIVE
from anychip.sdkbase.calls import CallStruct, OperandStruct, struct_of


def test_structs_are_those_of_the_shims_header(tmp_path):
    """Sizes and offsets as the compiler has them."""
    fields = {"Call": CallStruct, "Operand": OperandStruct}
    lines = [
        f'printf("{name}.{field[0]} %zu\\n", offsetof(shim::{name}, {field[0]}));'
        for name, struct in fields.items()
        for field in struct._fields_
    ]
    codes = ("FLOAT32", "FLOAT16", "BFLOAT16", "INT32", "INT8", "UINT8", "BOOL")
    lines += [f'printf("{c.lower()} %ld\\n", long(shim::{c}));' for c in codes]
    statuses = ("NO_WORKSPACE", "BAD_TYPE", "RAISED")
    lines += [f'printf("{name} %d\\n", int(shim::{name}));' for name in statuses]
    limits = ("MAX_RANK", "MAX_OPERANDS", "MAX_ATTRIBUTES")
    lines += [f'printf("{name} %d\\n", shim::{name});' for name in limits]
    source = tmp_path / "offsets.cpp"
    body = "\n".join(lines)
    source.write_text(
        f'#include <cstddef>\n#include <cstdio>\n#include "shim.h"\nint main() {{ {body} }}\n'
    )
    program = tmp_path / "offsets"
    command = ["g++", "-std=c++17", f"-I{NATIVE}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    told = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    found = {name: int(number) for name, number in map(str.split, told.splitlines())}
    wanted = {
        f"{name}.{field[0]}": getattr(struct, field[0]).offset
        for name, struct in fields.items()
        for field in struct._fields_
    }
    wanted |= (
        calls.CODES
        | dict(zip(statuses, calls.OWN, strict=True))
        | {name: getattr(calls, name) for name in limits}
    )
    assert found == wanted


def placed(shape, dtype, address):
    """A tensor whose buffer's handle is an address."""
    return Tensor(shape, dtype, buffer=Buffer(address, 1 << 20))


def test_an_index_pair_has_both_halves_and_strides_are_elements():
    host = np.array([2, 0], np.int32)
    index = IndexPair(host.data, placed((2,), DType.INT32, 4096))
    table, y = placed((4, 3), DType.BFLOAT16, 8192), placed((2, 3), DType.BFLOAT16, 0)
    y = y.view((2, 3), (6, 1), offset=5)
    spec = CallSpec("gather_rows", {"table": table.spec, "index": index.spec}, {"y": y.spec}, {})
    call = Call(spec, {"table": table, "index": index}, {"y": y})
    struct = struct_of(spec, call, lambda tensor: tensor.buffer.handle + tensor.offset)
    first, second, out = struct.operands[:3]
    assert struct.count == 3
    assert (first.device, first.dtype, first.rank, list(first.shape[:2])) == (8192, 2, 2, [4, 3])
    assert (second.device, second.host, second.dtype) == (4096, host.ctypes.data, 3)
    assert (out.device, list(out.strides[:2])) == (10, [6, 1])
    bare = struct_of(spec)
    assert bare.count == 3 and not any(o.device or o.host for o in bare.operands[:3])


def test_a_cache_is_two_operands_what_is_absent_has_no_rank_and_numbers_are_in_order():
    signature = CATALOGUE["paged_attention"]
    group = CacheGroup(1, 2, 8, DType.FLOAT16, 16, HND)
    cache = CacheSpec(group, 4)
    shapes = {"q": (3, 4, 8), "page_table": (1, 2)}
    inputs = {
        a.name: None if a.optional else TensorSpec(shapes.get(a.name, (2,)), DType.INT32)
        for a in signature.inputs
    }
    inputs |= {"q": TensorSpec((3, 4, 8), DType.FLOAT16), "cache": cache}
    outputs = {a.name: TensorSpec((3, 4, 8), DType.FLOAT16) for a in signature.outputs}
    attrs = {a.name: float(n + 1) for n, a in enumerate(signature.attrs)}
    spec = CallSpec("paged_attention", inputs, outputs, attrs)
    k, v = (
        Tensor(cache.shape, DType.FLOAT16, cache.strides, buffer=Buffer(a, 4096)) for a in (64, 128)
    )
    call = Call(spec, {"cache": CacheView(cache, k, v)}, {})
    struct = struct_of(spec, call, lambda tensor: tensor.buffer.handle)
    at = [a.name for a in signature.inputs].index("cache")
    assert [struct.operands[n].device for n in (at, at + 1)] == [64, 128]
    assert list(struct.operands[at].strides[:4]) == [256, 8, 128, 1]
    assert struct.count == len(signature.inputs) + len(signature.outputs) + 1
    assert list(struct.attributes[: len(attrs)]) == list(attrs.values())
    for place, arg in enumerate(signature.inputs):
        if arg.optional:
            assert struct.operands[place + (place > at)].rank == -1
