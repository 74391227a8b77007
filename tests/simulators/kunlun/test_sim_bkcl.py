"""The simulated collectives: what every rank of two and three processes gets."""

import subprocess
from pathlib import Path

import pytest
from bkcl_ranks import ABI, Ranks, finish
from sim_runtime_tree import Tree, compile_native
from sim_trees import shared_tree, with_accounts


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> Path:
    """Kernels that take their time, for the runtime of the shared tree."""
    library = shared_tree() / "runtime" / "lib" / "libxpurt.so"
    source = Path(__file__).with_name("sim_runtime_kernels.cpp")
    output = tmp_path_factory.mktemp("bkcl") / "kernels.so"
    return compile_native(output, [source], "-shared", "-DXPURT_VERSION_MAJOR=5", str(library))


@pytest.fixture
def ranks(kernels, tmp_path) -> Ranks:
    tree = with_accounts(shared_tree(), tmp_path)
    return Ranks(Tree(tree.root, kernels, {"XPUSIM_STATE": str(tree.state)}), tmp_path)


JOIN = """
expect(join_code(), 0)
"""

REDUCTIONS = """
FOLD = {ADD: np.add, PRODUCT: np.multiply, MAX: np.maximum, MIN: np.minimum}
def fold(op, parts):
    # In rank order; the 16-bit floats in float32.
    wide = np.float32 if parts[0].dtype.itemsize == 2 else parts[0].dtype
    total = parts[0].astype(wide)
    for part in parts[1:]:
        part = part.astype(wide)
        total = FOLD[op](total, part)
    return total.astype(parts[0].dtype)

def same(found, wanted, what):
    assert found.tobytes() == wanted.tobytes(), (what, found[:8], wanted[:8])

for name, kind in KINDS.items():
    dtype = N["BKCL_" + name]
    for op in (ADD, PRODUCT, MAX, MIN):
        for count in (0, 1, 5, 7, 1000, 70001 if op == ADD else 64):
            what = (name, op, count)
            parts = [values(rank, count, kind, 3 if op == ADD else 1) for rank in range(WORLD)]
            send, recv = device_array(parts[RANK]), device_array(np.zeros(count, kind))
            do("all_reduce", context, send, recv, size(count), dtype, op, P(stream))
            expect(wait(), 0)
            same(fetch(recv, kind, count), fold(op, parts), what)
            same(fetch(send, kind, count), parts[RANK], what)
            do("all_reduce", context, send, send, size(count), dtype, op, P(stream))
            expect(wait(), 0)
            same(fetch(send, kind, count), fold(op, parts), (what, "in place"))
            xpu.xpu_free(send), xpu.xpu_free(recv)
"""

OTHERS = """
kind, dtype = np.int32, N["BKCL_INT32"]
for count in (0, 1, 3, 1000, 70011):
    mine = [values(rank, count, kind) for rank in range(WORLD)]
    wide = [values(rank, count * WORLD, kind) for rank in range(WORLD)]
    own = slice(RANK * count, (RANK + 1) * count)
    def check(address, wanted, what):
        expect(wait(), 0)
        found = fetch(address, kind, len(wanted))
        assert found.tobytes() == wanted.tobytes(), (what, count, found[:6], wanted[:6])

    send, recv = device_array(mine[RANK]), device_array(np.full(count * WORLD, 77, kind))
    do("all_gather", context, send, size(count), recv, dtype, P(stream))
    check(recv, np.concatenate(mine), "all_gather")
    part = P(recv.value + own.start * 4)
    do("all_gather", context, part, size(count), recv, dtype, P(stream))
    check(recv, np.concatenate(mine), "all_gather in place")

    send, recv = device_array(wide[RANK]), device_array(np.full(count, 77, kind))
    do("reduce_scatter", context, send, recv, size(count), dtype, ADD, P(stream))
    check(recv, sum(wide)[own], "reduce_scatter")
    part = P(send.value + own.start * 4)
    do("reduce_scatter", context, send, part, size(count), dtype, ADD, P(stream))
    check(part, sum(wide)[own], "reduce_scatter in place")

    for root in range(WORLD):
        recv = device_array(np.full(count, 77, kind))
        send = device_array(mine[RANK]) if RANK == root else None
        do("broadcast", context, send, recv, size(count), dtype, root, P(stream))
        check(recv, mine[root], "broadcast")
        send = device_array(mine[RANK])
        recv = device_array(np.full(count, 77, kind)) if RANK == root else None
        do("reduce", context, send, recv, size(count), dtype, MIN, root, P(stream))
        if RANK == root:
            check(recv, np.minimum.reduce(mine), "reduce")

    send, recv = device_array(wide[RANK]), device_array(np.full(count * WORLD, 77, kind))
    do("all_to_all", context, send, size(count), recv, dtype, P(stream))
    wanted = np.concatenate([w[own] for w in wide])
    check(recv, wanted, "all_to_all")
    do("all_to_all", context, send, size(count), send, dtype, P(stream))
    check(send, wanted, "all_to_all in place")
"""

UNEQUAL = """
# Rank r sends r + 1 + 20000 * peer elements to each peer, with gaps between them.
def counts_of(rank):
    return np.array([rank + 1 + 20000 * peer for peer in range(WORLD)], np.uint64)
def displacements(counts):
    return np.concatenate([[0], np.cumsum(counts + 5)[:-1]]).astype(np.uint64)
kind, dtype = np.float32, N["BKCL_FLOAT"]
sent = [values(rank, int((counts_of(rank) + 5).sum()), kind) for rank in range(WORLD)]
mine = counts_of(RANK)
incoming = np.array([counts_of(peer)[RANK] for peer in range(WORLD)], np.uint64)
room = np.full(int((incoming + 5).sum()), 77, kind)
send, recv = device_array(sent[RANK]), device_array(room)
arrays = [device_array(a) for a in (mine, displacements(mine), incoming, displacements(incoming))]
do("all_to_all_v", context, send, arrays[0], arrays[1], dtype,
   recv, arrays[2], arrays[3], dtype, P(stream))
expect(wait(), 0)
for peer in range(WORLD):
    start, at = int(displacements(counts_of(peer))[RANK]), int(displacements(incoming)[peer])
    n = int(incoming[peer])
    room[at:at + n] = sent[peer][start:start + n]
assert (fetch(recv, kind, room.size) == room).all()
"""

MESSAGES = """
dtype, kind = N["BKCL_FLOAT"], np.float32
right, left, count = (RANK + 1) % WORLD, (RANK - 1) % WORLD, 50021
data = [values(rank, count, kind) for rank in range(WORLD)]
send, recv = device_array(data[RANK]), device_array(np.zeros(count, kind))
# A ring: every rank sends first. One by one, messages larger than a mailbox would hang.
do("group_start")
do("send", context, send, size(count), right, dtype, P(stream))
do("recv", context, recv, size(count), left, dtype, P(stream))
do("group_end")
expect(wait(), 0)
assert (fetch(recv, kind, count) == data[left]).all()
# Two messages to the same rank keep their order, an empty one and one to oneself work.
if RANK == 0:
    do("send", context, send, size(10), 1, dtype, P(stream))
    do("send", context, P(send.value + 40), size(20), 1, dtype, P(stream))
    do("send", context, None, size(0), 1, dtype, P(stream))
if RANK == 1:
    do("recv", context, recv, size(10), 0, dtype, P(stream))
    do("recv", context, P(recv.value + 40), size(20), 0, dtype, P(stream))
    do("recv", context, None, size(0), 0, dtype, P(stream))
    expect(wait(), 0)
    assert (fetch(recv, kind, 30) == data[0][:30]).all()
do("group_start")
do("group_start")
do("recv", context, recv, size(count), RANK, dtype, P(stream))
do("group_end")
do("send", context, send, size(count), RANK, dtype, P(stream))
do("all_reduce", context, send, send, size(count), dtype, ADD, P(stream))
do("group_end")
expect(wait(), 0)
assert (fetch(recv, kind, count) == data[RANK]).all()
assert (fetch(send, kind, count) == sum(data[1:], data[0])).all()
# Two long messages between the same two ranks in one group: the first one sent comes first.
half = [P(a.value + 4 * 25000) for a in (send, recv)]
sent = fetch(send, kind, 50000)
do("group_start")
for a, b in ((send, recv), half):
    if RANK == 0:
        do("send", context, a, size(25000), 1, dtype, P(stream))
    if RANK == 1:
        do("recv", context, b, size(25000), 0, dtype, P(stream))
do("group_end")
expect(wait(), 0)
if RANK == 1:
    assert (fetch(recv, kind, 50000) == sent).all()
"""

ORDER = """
# Behind work and a fill on the collective's own stream. The call returns although the other rank
# has not come: it only comes when this one says so.
send = device_array(np.zeros(1000, np.float32))
if RANK == 1:
    sys.stdin.readline()
probe.probe_sleep(P(stream), 300)
probe.probe_fill(P(stream), send, 4000, 1 + RANK)
do("all_reduce", context, send, send, size(1000), N["BKCL_INT32"], ADD, P(stream))
print("returned", flush=True)
expect(wait(), 0)
total = sum(0x01010101 * (rank + 1) for rank in range(WORLD))
assert (fetch(send, np.int32, 1000) == total).all()
# On the default stream of a thread that looks at another device, too.
expect(xpu.xpu_set_device(1), 0)
do("all_reduce", context, send, send, size(1000), N["BKCL_INT32"], MAX, None)
device = c_int()
xpu.xpu_current_device(byref(device))
expect(device.value, 1)
xpu.xpu_set_device(0)
expect(xpu.xpu_wait(None), 0)
"""

CONTEXT = """
value = c_int()
do("comm_count", context, byref(value))
expect(value.value, WORLD)
do("comm_user_rank", context, byref(value))
expect(value.value, RANK)
expect(list((c_int * 3).from_address(context.value)), [RANK, 0, WORLD])
room = device_array(np.zeros(4, np.float32))
FLOAT, INVALID = N["BKCL_FLOAT"], N["BKCL_INVALID_ARGUMENT"]
reduce = lambda *a: call("all_reduce", *a, P(stream))
for wrong in (
    (None, room, room, size(4), FLOAT, ADD), (room, room, room, size(4), FLOAT, ADD),
    (context, None, room, size(4), FLOAT, ADD), (context, room, None, size(4), FLOAT, ADD),
    (context, room, room, size(4), 99, ADD), (context, room, room, size(4), FLOAT, 4),
):
    expect((wrong, reduce(*wrong)), (wrong, INVALID))
expect(call("broadcast", context, room, room, size(4), FLOAT, WORLD, P(stream)), INVALID)
expect(call("send", context, room, size(4), -1, FLOAT, P(stream)), INVALID)
expect(call("group_end"), INVALID)
do("destroy_context", context)
expect(call("destroy_context", context), INVALID)
expect(reduce(context, room, room, size(4), FLOAT, ADD), INVALID)
"""


@pytest.mark.parametrize("world", [2, 3])
def test_reductions_of_every_type_operation_and_length(ranks, world):
    ranks.run(world, JOIN + REDUCTIONS)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("body", [OTHERS, UNEQUAL, MESSAGES], ids=["others", "unequal", "messages"])
def test_what_moves_between_ranks(ranks, world, body):
    ranks.run(world, JOIN + body)


def test_one_rank_alone_keeps_its_data(ranks):
    ranks.run(1, JOIN + REDUCTIONS + OTHERS)


def test_a_collective_runs_behind_what_was_queued_before_it(ranks):
    first, second = (ranks.start(rank, 2, JOIN + ORDER) for rank in range(2))
    assert first.stdout.readline() == "returned\n"
    second.stdin.write("\n")
    second.stdin.flush()
    finish(first), finish(second)


def test_contexts_tell_their_rank_and_wrong_arguments_are_refused_at_the_call(ranks):
    for _, err in ranks.run(2, JOIN + CONTEXT):
        assert "bkcl_all_reduce: no such data type" in err
        assert "bkcl_all_reduce: a null buffer" in err


def test_all_devices_of_one_process(ranks):
    body = """
contexts, devices = (P * 2)(), (c_int * 2)(0, 1)
do("comm_init_all", contexts, 2, devices)
rooms = []
for device in (0, 1):
    xpu.xpu_set_device(device)
    rooms.append(device_array(np.array([device + 1, -device], np.int32)))
do("group_start")
for device in (0, 1):
    do("all_reduce", P(contexts[device]), rooms[device], rooms[device], size(2), N["BKCL_INT32"],
       ADD, None)
do("group_end")
for device in (0, 1):
    xpu.xpu_set_device(device)
    expect(xpu.xpu_wait(None), 0)
    expect(fetch(rooms[device], np.int32, 2).tolist(), [3, -1])
"""
    ranks.run(1, body)


def test_ranks_of_one_thread_join_when_their_group_ends(ranks):
    body = """
room, both = identity(), (P * 2)()
do("group_start")
for rank in (0, 1):
    do("init_rank", byref(both, 8 * rank), rank, 2, room)
do("group_end")
value = c_int()
for rank in (0, 1):
    do("comm_user_rank", P(both[rank]), byref(value))
    expect(value.value, rank)
"""
    ranks.run(1, body)


def test_library_and_table_name_the_same_symbols(ranks):
    rows = [line.split("\t") for line in ABI.read_text().splitlines()[1:]]
    wanted = {row[5] for row in rows if row[0] == "function"}
    told = subprocess.run(
        ["nm", "-D", "--defined-only", ranks.library], capture_output=True, text=True
    )
    found = {line.split()[2] for line in told.stdout.splitlines() if " T " in line}
    assert found == wanted


def test_the_table_is_what_the_header_declares(tmp_path):
    rows = [line.split("\t") for line in ABI.read_text().splitlines()[1:]]
    checks = ['#include "xpu/bkcl.h"']
    for kind, name, _, declaration, *_ in rows:
        if kind == "enum":
            checks.append(f"static_assert({name} == {declaration});")
        if kind == "struct":
            checks.append(f"static_assert(sizeof({name}) == {declaration});")
        if kind == "function":  # an overload with other types would make the call ambiguous
            checks.append(
                f"{declaration};\nauto* {name}_is = static_cast<decltype(&{name})>({name});"
            )
    source = tmp_path / "table.cpp"
    source.write_text("\n".join(checks))
    compile_native(tmp_path / "table.so", [source], "-shared")
