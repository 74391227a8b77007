"""What the simulated collectives do when a rank dies, errs, or does something else.

BKCL_TIMEOUT is ten minutes unless a test sets it, and a child has one: who only waits, fails.
"""

import os

import pytest
from bkcl_ranks import Ranks, finish
from test_sim_bkcl import JOIN, kernels, ranks

__all__ = ["kernels", "ranks"]  # fixtures

REDUCE = """
def reduce(count=1000, op=ADD, dtype=N["BKCL_FLOAT"]):
    return call("all_reduce", context, room, room, size(count), dtype, op, P(stream))
room = device_array(np.zeros(1000, np.float32))
SYSTEM, INTERNAL = N["BKCL_SYSTEM_ERROR"], N["BKCL_INTERNAL_ERROR"]
INVALID = N["BKCL_INVALID_ARGUMENT"]

# A call of a rank that hears of an error before is refused, so who errs waits for the others'.
QUEUED = os.environ["TEST_ID"] + "-queued"
def after_the_others():
    while not os.path.exists(QUEUED):
        time.sleep(0.01)
def queued(code):
    open(QUEUED, "w").close()
    return code
"""


def leftovers() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "bkcl" in name.lower()}


def test_a_dead_rank_ends_the_others_within_the_timeout(ranks: Ranks):
    before = leftovers()
    body = """
print("joined", flush=True)
sys.stdin.readline()
expect(reduce(), 0)
expect(abs(wait()), 714)
expect(reduce(), SYSTEM)
do("destroy_context", context)
"""
    children = [ranks.start(rank, 3, REDUCE + JOIN + body, BKCL_TIMEOUT="2") for rank in range(3)]
    for child in children:
        assert child.stdout.readline() == "joined\n"
    children[1].kill()
    for child in (children[0], children[2]):
        child.stdin.write("\n")
        child.stdin.flush()
    for child in (children[0], children[2]):
        _, err = finish(child)
        assert "no sign of rank 1" in err or "broken since" in err
    finish(children[1], code=-9)
    assert leftovers() == before


def test_a_rank_that_never_comes(ranks: Ranks):
    child = ranks.start(0, 2, REDUCE + "expect(join_code(), SYSTEM)", BKCL_TIMEOUT="1.5")
    _, err = finish(child)
    assert "waiting for the other ranks took over 1.5 s: no sign of rank 1" in err


def test_a_join_that_failed_keeps_no_descriptor(ranks: Ranks):
    body = """
room_of_id, before = ctypes.create_string_buffer(128), len(os.listdir("/proc/self/fd"))
for _ in range(3):
    do("get_unique_id", room_of_id)
    expect(call("init_rank", byref(context), 0, 2, room_of_id), SYSTEM)
expect(len(os.listdir("/proc/self/fd")), before)
"""
    ranks.run(1, REDUCE + body, BKCL_TIMEOUT="0.2")


def test_forced_synchronous_calls_return_the_status_themselves(ranks: Ranks):
    body = """
told = os.environ["TEST_ID"] + ".told"
if RANK == 0:
    expect(reduce(), SYSTEM)
    open(told, "w").close()
while not os.path.exists(told):
    time.sleep(0.01)
"""
    variables = {"BKCL_FORCE_SYNC": "1", "BKCL_TIMEOUT": "1"}
    ranks.run(2, REDUCE + JOIN + body, **variables)


@pytest.mark.parametrize(
    "other", ["reduce(999)", "reduce(op=MAX)", 'reduce(500, dtype=N["BKCL_INT32"])']
)
def test_ranks_that_disagree_are_told(ranks: Ranks, other):
    body = f"""
expect({other} if RANK else reduce(), 0)
expect(abs(wait()), 714)
expect(reduce(), INTERNAL)
"""
    for _, err in ranks.run(2, REDUCE + JOIN + body):
        assert "calls this one with other arguments" in err or "broken since" in err


def test_a_message_of_another_length_is_told(ranks: Ranks):
    body = """
FLOAT = N["BKCL_FLOAT"]
if RANK == 0:
    do("send", context, room, size(10), 1, FLOAT, P(stream))
else:
    do("recv", context, room, size(12), 0, FLOAT, P(stream))
expect(abs(wait()), 714)
"""
    told = ranks.run(2, REDUCE + JOIN + body)
    assert "rank 0 sends 40 bytes" in told[1][1]


@pytest.mark.parametrize(
    "waiting", ["reduce()", 'call("recv", context, room, size(9), 0, N["BKCL_FLOAT"], P(stream))']
)
def test_an_abort_wakes_the_others(ranks: Ranks, waiting):
    body = f"""
if RANK == 0:
    after_the_others()
    do("comm_abort", context)
    expect(call("destroy_context", context), INVALID)
else:
    expect(queued({waiting}), 0)
    expect(abs(wait()), 714)
    expect(reduce(), INTERNAL)
"""
    ranks.run(2, REDUCE + JOIN + body)


def test_host_memory_is_a_kernel_exception_and_the_other_rank_hears_of_it(ranks: Ranks):
    body = """
host = ctypes.create_string_buffer(4000)
if RANK == 0:
    after_the_others()
    expect(call("all_reduce", context, host, room, size(1000), N["BKCL_FLOAT"], ADD, P(stream)), 0)
else:
    expect(queued(reduce()), 0)
expect(abs(wait()), 714)
"""
    ranks.run(2, REDUCE + JOIN + body)


def test_a_rank_is_taken_once_and_all_count_the_same_ranks(ranks: Ranks):
    body = """
room_of_id = identity()
expect(call("init_rank", byref(context), 2, 2, room_of_id), INVALID)
expect(call("init_rank", byref(context), 0, 65, room_of_id), INVALID)
expect(call("init_rank", byref(context), 0, 2, bytes(128)), INVALID)
do("group_start")
do("init_rank", byref(context), 0, 1, room_of_id)
do("group_end")
# All ranks of the id have come: it is used up.
expect(call("init_rank", byref(context), 0, 1, room_of_id), SYSTEM)
"""
    ranks.run(1, REDUCE + body)


def test_a_second_rank_of_the_same_number_and_another_world(ranks: Ranks):
    body = """
first = ctypes.create_string_buffer(128)
do("get_unique_id", first)
codes = [None] * 3
def come(i, rank, world):
    codes[i] = call("init_rank", byref(P()), rank, world, first)
threads = [threading.Thread(target=come, args=a) for a in ((0, 0, 2),)]
threads[0].start()
time.sleep(0.3)
come(1, 0, 2)
come(2, 1, 3)
threads[0].join()
expect(codes, [SYSTEM, INVALID, INVALID])
"""
    out = ranks.run(1, REDUCE + body, BKCL_TIMEOUT="1.5")
    assert "rank 0 is taken" in out[0][1]
    assert "rank 1 says 3 ranks, another one said 2" in out[0][1]


@pytest.mark.parametrize("value", ["soon", "0", "-3", "nan"])
def test_a_timeout_that_is_no_number_of_seconds(ranks: Ranks, value):
    out = ranks.run(1, REDUCE + "expect(join_code(), INVALID)", BKCL_TIMEOUT=value)
    assert f"BKCL_TIMEOUT={value} is no number of seconds" in out[0][1]
