"""The communicator: real processes as ranks, what it refuses, and what it makes of a status."""

import socket
import subprocess
from pathlib import Path

import kunlun_sim
import pytest

from anychip.chips.kunlun.communicator import Bkcl
from anychip.contract.errors import ChipError, ErrorKind

RANK = """
from anychip.chips.kunlun import communicator
from anychip.chips.kunlun.communicator import Bkcl
from anychip.sdkbase import communicator as base
from anychip.hostops import NUMPY_DTYPES
parts.close()
parts = kunlun_sim.Parts(sdk, kernels, card=RANK)
bkcl = Bkcl(sdk.root / "sdk" / "lib" / "libbkcl.so")
ranks = base.RankCommunicator(bkcl, parts.memory, parts.blocks.address, parts.stream)

def values(rank, count, dtype):
    numbers = np.random.default_rng(7 + rank).integers(-9, 10, count)
    return (numbers * 0.37 if dtype.is_float else numbers).astype(NUMPY_DTYPES[dtype])

def tensor(content, dtype):
    made = Tensor(content.shape, dtype, buffer=parts.memory.allocate(content.nbytes))
    parts.memory.copy_in(made, memoryview(content.reshape(-1).view(np.uint8)))
    return made

def numbers(made):
    host = np.zeros(made.shape, NUMPY_DTYPES[made.dtype])
    parts.memory.copy_out(made, memoryview(host.reshape(-1).view(np.uint8)))
    return host
"""

COLLECTIVES = """
ranks.join(RANK, WORLD, ADDRESS)
for dtype in communicator.DTYPES:
    wide = np.float32 if dtype.is_float else NUMPY_DTYPES[dtype]
    for count in (1, 5, 1001):
        everyone = [values(rank, count, dtype) for rank in range(WORLD)]
        summed = everyone[0].astype(wide)
        for other in everyone[1:]:
            summed = summed + other.astype(wide)
        for operation, wanted in (("sum", summed), ("max", np.maximum.reduce(everyone))):
            made = tensor(everyone[RANK], dtype)
            ranks.all_reduce(made, operation)
            wanted = wanted.astype(NUMPY_DTYPES[dtype])
            assert numbers(made).tobytes() == wanted.tobytes(), (dtype, count, operation)
        rows = [part.reshape(count, 1).repeat(3, 1) for part in everyone]
        target = tensor(np.zeros((WORLD * count, 3), rows[0].dtype), dtype)
        ranks.all_gather(target, tensor(rows[RANK], dtype))
        assert (numbers(target) == np.concatenate(rows)).all()
mark = Path(os.environ["BARRIER_MARK"])
if RANK == 0:
    time.sleep(0.5)
    mark.touch()
ranks.barrier(10)
assert mark.exists(), "passed the barrier before rank 0 had come"
bkcl.close(), bkcl.close(), parts.close()
"""

REFUSALS = """
def refused(act):
    try:
        act()
    except ChipError as error:
        assert not error.fatal and error.fact.kind.value == "invalid argument", error
        return str(error).partition(": invalid argument: ")[2]
    return "no error"

four = tensor(np.ones(4, np.float32), DType.FLOAT32)
print(refused(lambda: ranks.all_reduce(four, "sum")))
print(refused(lambda: ranks.barrier(1)))
print(refused(lambda: ranks.join(1, 1, ADDRESS)))
print(refused(lambda: ranks.join(0, 2, "127.0.0.1:5")))
ranks.join(0, 1, ADDRESS)
print(refused(lambda: ranks.join(0, 1, ADDRESS)))
small = Tensor((4,), DType.INT8, buffer=parts.memory.allocate(4))
print(refused(lambda: ranks.all_reduce(small, "max")))
print(refused(lambda: ranks.all_reduce(four, "mean")))
print(refused(lambda: ranks.all_reduce(four.view((2,), (2,)), "sum")))
print(refused(lambda: ranks.all_gather(four.view((2, 2)), four)))
parts.memory.free(four.buffer)
print(refused(lambda: ranks.all_reduce(four, "sum")))
"""

REFUSED = """\
a collective of float32 (4,): before join
a barrier before join
rank 1 of 1 joins, 0 ranks joined before
ranks meet at tcp://host:port, not at '127.0.0.1:5'
rank 0 of 1 joins, 1 ranks joined before
BKCL has no type for int8; it has float32, float16, bfloat16, int32, uint8
all_reduce by 'mean'; known: sum, max
a collective of float32 (2,): a tensor with gaps
all_gather of float32 (4,) from 1 ranks into float32 (2, 2)
a buffer of 16 bytes was freed or is another chip's
"""

SURVIVOR = """
ranks.join(RANK, WORLD, ADDRESS)
print("joined", flush=True)
sys.stdin.readline()
made = tensor(values(RANK, 100, DType.FLOAT32), DType.FLOAT32)
ranks.all_reduce(made, "sum")
try:
    numbers(made)
except ChipError as error:
    print(error.fatal, error)
print(told(lambda: ranks.all_reduce(made, "sum")))
"""


@pytest.fixture
def address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{found.getsockname()[1]}"


@pytest.fixture
def start(sdk, kernels, address, monkeypatch):
    """Starts one rank, which says a dead one is dead after two seconds."""
    monkeypatch.setenv("BKCL_TIMEOUT", "2")

    def begin(rank: int, world: int, body: str) -> subprocess.Popen:
        known = f"\nRANK, WORLD, ADDRESS = {rank}, {world}, {address!r}\n"
        return kunlun_sim.start(sdk, kernels, known + RANK + body)

    return begin


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_with_their_own_data_get_the_same_answer(start, world, tmp_path, monkeypatch):
    monkeypatch.setenv("BARRIER_MARK", str(tmp_path / "mark"))
    for child in [start(rank, world, COLLECTIVES) for rank in range(world)]:
        kunlun_sim.ended(child)


def test_what_cannot_work_is_refused_by_name(start):
    assert kunlun_sim.ended(start(0, 1, REFUSALS)) == REFUSED


def test_a_dead_rank_is_an_error_at_the_next_wait_and_at_every_later_call(start):
    children = [start(rank, 2, SURVIVOR) for rank in range(2)]
    for child in children:
        assert child.stdout.readline() == "joined\n"
    children[1].kill()
    out, _ = children[0].communicate("\n", 60)
    late, later = out.splitlines()
    assert late.startswith("True kunlun, operators: kernel failure: xpu_wait: XRE 714")
    assert late.endswith("queued since the last wait: bkcl_all_reduce")
    assert "device lost: bkcl_all_reduce: BKCL 3 (SYSTEM_ERROR)" in later
    children[1].communicate()


def test_ranks_that_never_come_are_named(start):
    body = "base.MEETING = 0.7\nprint(told(lambda: ranks.join(0, 3, ADDRESS)))"
    told = kunlun_sim.ended(start(0, 3, body))
    assert "timeout: rank 0 of 3 at tcp://127.0.0.1:" in told
    assert "not all ranks came within 0.7 s: no sign of rank 1, 2 of 3" in told


@pytest.mark.parametrize(
    ("name", "other", "what"),
    [
        ("BKCL_FLOAT16", "BKCL_BFLOAT16", "of float16"),
        ("BKCL_UINT8", "BKCL_INT32", "of uint8"),
        ("BKCL_MAX", "BKCL_MIN", "(max)"),
        ("BKCL_ADD", "BKCL_PRODUCT", "(sum)"),
    ],
)
def test_a_library_with_other_numbers_is_found_out_before_it_is_used(start, name, other, what):
    body = f"""
bkcl.numbers[{name!r}] = bkcl.numbers[{other!r}]
print(told(lambda: ranks.join(RANK, WORLD, ADDRESS)))
"""
    for child in [start(rank, 2, body) for rank in range(2)]:
        told = kunlun_sim.ended(child)
        assert "version mismatch: all_reduce" in told
        assert what in told
        assert "this libbkcl has other numbers than known" in told


def test_a_library_without_the_functions_is_named_with_the_symbol(sdk):
    with pytest.raises(ChipError, match="undefined symbol: _Z18bkcl_get_unique_idP12BKCLUniqueId"):
        Bkcl(sdk.root / "runtime" / "lib" / "libxpuml.so")
    with pytest.raises(ChipError, match="version mismatch: /nowhere"):
        Bkcl("/nowhere/libbkcl.so")


@pytest.fixture(scope="module")
def plain_library(tmp_path_factory) -> Path:
    """A libbkcl with C's names, whose first function returns what is in `status`."""
    place = tmp_path_factory.mktemp("plain")
    names = "init_rank", "destroy_context", "all_reduce", "all_gather"
    code = 'extern "C" {\nint status;\nint bkcl_get_unique_id(void*) { return status; }\n'
    code += "".join(f"int bkcl_{name}() {{ return 0; }}\n" for name in names)
    (place / "plain.cpp").write_text(code + "}\n")
    command = ["g++", "-shared", "-fPIC", str(place / "plain.cpp"), "-o", str(place / "plain.so")]
    subprocess.run(command, check=True)
    return place / "plain.so"


@pytest.mark.parametrize(
    ("status", "kind", "fatal", "name"),
    [
        (1, ErrorKind.INVALID, False, "BKCL 1 (INVALID_ARGUMENT)"),
        (2, ErrorKind.KERNEL, True, "BKCL 2 (RUNTIME_ERROR)"),
        (3, ErrorKind.LOST, True, "BKCL 3 (SYSTEM_ERROR)"),
        (4, ErrorKind.KERNEL, True, "BKCL 4 (INTERNAL_ERROR)"),
        (9, ErrorKind.KERNEL, True, "BKCL 9"),
    ],
)
def test_every_status_says_that_it_is_of_bkcl(plain_library, status, kind, fatal, name):
    import ctypes

    ctypes.c_int.in_dll(ctypes.CDLL(str(plain_library)), "status").value = status
    with pytest.raises(ChipError) as caught:
        Bkcl(plain_library).call("bkcl_get_unique_id", ctypes.create_string_buffer(256))
    assert (caught.value.fact.kind, caught.value.fatal) == (kind, fatal)
    assert "bkcl_get_unique_id" in str(caught.value)
    assert name in str(caught.value)
