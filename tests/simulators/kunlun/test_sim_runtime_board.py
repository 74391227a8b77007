"""The board file: one account of the cards for all processes, and what it says of itself."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sim_runtime_tree import P800, Tree, make_board

HOLD = """
malloc(90 * GIB)
print("held", flush=True)
sys.stdin.readline()
"""


def held_by_another(tree: Tree) -> subprocess.Popen:
    other = tree.start(HOLD)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_processes_share_a_card_and_a_killed_one_gives_back(p800: Tree):
    other = held_by_another(p800)
    try:
        p800.run("expect(malloc_code(90 * GIB), -705)\nmalloc(6 * GIB)")
    finally:
        other.kill()
    # Not yet waited for, the other is a zombie: it holds nothing all the same.
    p800.run("""
deadline = time.monotonic() + 30
while malloc_code(90 * GIB):
    assert time.monotonic() < deadline
    time.sleep(0.01)
""")
    assert other.wait() == -signal.SIGKILL
    other.communicate()


def test_a_process_that_can_learn_nothing_takes_nobody_for_dead(p800: Tree):
    """It has no descriptor left for /proc, and then has again."""
    other = held_by_another(p800)
    try:
        p800.run("""
import errno, resource
malloc(GIB)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    expect(error.errno, errno.EMFILE)
expect(malloc_code(90 * GIB), -705)
for file in taken:
    os.close(file)
expect(malloc_code(90 * GIB), -705)
malloc(5 * GIB)
""")
    finally:
        other.communicate("\n")


def test_a_process_that_ends_well_gives_back_too(p800: Tree):
    other = held_by_another(p800)
    other.communicate("\n")
    assert other.returncode == 0
    p800.run("malloc(96 * GIB)")


def test_entries_of_dead_processes_are_used_again(p800: Tree):
    """The board has room for 64 processes; these are 80, one after the other."""
    script = """
import ctypes, os
for number in range(80):
    child = os.fork()
    if child == 0:
        library = ctypes.CDLL(os.environ["TEST_RUNTIME"])
        os._exit(-library.xpu_set_device(0) % 251)
    assert os.waitpid(child, 0)[1] == 0, number
"""
    subprocess.run([sys.executable, "-c", script], env=p800.environment(), check=True)


def test_attributes_are_those_of_the_board(p800: Tree):
    found = p800.run("""
value = U64()
for device in (0, 1):
    row = []
    for attribute in range(14):
        expect(xpu.xpu_device_get_attr(byref(value), attribute, device), 0)
        row.append(value.value)
    print(*row)
expect(xpu.xpu_device_get_attr(byref(value), 14, 0), -707)
expect(xpu.xpu_device_get_attr(byref(value), -1, 0), -707)
expect(xpu.xpu_device_get_attr(byref(value), 0, 2), -701)
""")
    shared = [7, 1, 300, 96 << 30, 96 << 20, 12, 13, 4, 16, 0, 2, 3]
    rows = [[int(word) for word in line.split()] for line in found.splitlines()]
    assert rows == [[0x03 << 8, 0, *shared], [0x16 << 8, 1, *shared]]


def test_versions_come_from_the_library_and_the_board(p800: Tree, r200: Tree):
    body = """
for name in ("driver", "runtime"):
    major, minor = c_uint32(), c_uint32()
    expect(getattr(xpu, f"xpu_get_{name}_version")(byref(major), byref(minor)), 0)
    text = ctypes.create_string_buffer(64)
    expect(getattr(xpu, f"xpu_get_{name}_commit")(text), 0)
    print(major.value, minor.value, text.value.decode())
"""
    assert p800.run(body).splitlines() == [
        "5 0 anychip-simulated-driver",
        "5 0 anychip-simulated-runtime",
    ]
    assert r200.run(body).splitlines()[0] == "4 33 anychip-simulated-driver"


def test_calls_of_the_newer_runtime_are_missing_in_the_older(p800: Tree, r200: Tree):
    body = "print(hasattr(xpu, 'xpu_memcpy_async'), hasattr(xpu, 'xpu_event_query'))"
    assert p800.run(body) == "True True\n"
    assert r200.run(body) == "False False\n"


@pytest.mark.parametrize("driver", ["4.33.0.0", "5.0.20.99", "6.0.21.0"])
def test_a_driver_that_does_not_fit_refuses_every_call(p800: Tree, board_maker: Path, driver: str):
    make_board(board_maker, p800.root, **(P800 | {"driver": driver}))
    ended = p800.child("""
number, text = INT(), ctypes.create_string_buffer(64)
expect(xpu.xpu_device_count(byref(number)), -704)
expect(xpu.xpu_set_device(0), -704)
expect(malloc_code(64), -704)
expect(xpu.xpu_memcpy(text, text, 8, H2D), -704)
expect(xpu.xpu_stream_create(byref(P())), -704)
expect(xpu.xpu_wait(None), -704)
expect(probe.probe_empty(None, 1), -704)
expect(xpu.xpu_host_alloc(byref(P()), 64, 0), -704)
expect(xpu.xpu_get_driver_version(byref(c_uint32()), byref(c_uint32())), 0)
""")
    assert ended.returncode == 0, ended.stderr
    numbers = ".".join((driver.split(".") + ["0"] * 4)[:4])
    assert f"driver {numbers} does not fit runtime 5.0." in ended.stderr


@pytest.mark.parametrize("break_it", ["missing", "short", "foreign"])
def test_without_a_board_there_is_no_device(p800: Tree, break_it: str):
    board = p800.root / "state" / "board"
    size = board.stat().st_size
    board.unlink()
    if break_it != "missing":
        board.write_bytes(bytes(100 if break_it == "short" else size))
    ended = p800.child("""
expect(xpu.xpu_device_count(byref(INT())), -703)
expect(xpu.xpu_get_driver_version(byref(c_uint32()), byref(c_uint32())), -703)
expect(malloc_code(64), -703)
expect(xpu.xpu_get_runtime_version(byref(c_uint32()), byref(c_uint32())), 0)
""")
    assert ended.returncode == 0, ended.stderr
    assert "no device: " in ended.stderr
    assert str(board) in ended.stderr


def test_a_variable_names_another_state_folder(p800: Tree, board_maker: Path, tmp_path: Path):
    one_card = {key: value.split(",")[0] for key, value in P800.items()}
    make_board(board_maker, tmp_path / "other", **one_card)
    count = "n = INT()\nexpect(xpu.xpu_device_count(byref(n)), 0)\nprint(n.value)"
    assert p800.run(count) == "2\n"
    assert p800.run(count, XPUSIM_STATE=str(tmp_path / "other" / "state")) == "1\n"


@pytest.mark.parametrize(
    ("visible", "physical"),
    [("1", [1]), ("1,0", [1, 0]), ("0,5,1", [0]), ("", []), ("-1", []), ("1,x", [1])],
)
def test_visible_devices_are_counted_from_zero(p800: Tree, visible: str, physical: list[int]):
    found = p800.run(
        """
n, value = INT(), U64()
expect(xpu.xpu_device_count(byref(n)), 0)
listed = (INT * max(1, n.value))()
expect(xpu.xpu_device_list(listed), 0)
expect(list(listed)[: n.value], list(range(n.value)))
for device in range(n.value):
    expect(xpu.xpu_device_get_attr(byref(value), 1, device), 0)
    print(value.value)
expect(xpu.xpu_set_device(n.value), -701)
""",
        XPU_VISIBLE_DEVICES=visible,
    )
    assert [int(line) for line in found.split()] == physical


def test_devices_have_no_peer_on_a_port(p800: Tree):
    p800.run("""
peer = INT(5)
expect(xpu.xpu_get_ccix_peer_id(0, 3, byref(peer)), 0)
expect(peer.value, -1)
expect(xpu.xpu_get_ccix_peer_id(0, 4, byref(peer)), -707)
expect(xpu.xpu_get_ccix_peer_id(9, 0, byref(peer)), -701)
""")


def test_kernel_times_are_there_in_profiling_mode_alone(p800: Tree):
    body = """
probe.probe_sleep(None, 50)
xpu.xpu_wait(None)
value = U64()
print(xpu.xpu_last_kernel_exec_time(byref(value)), value.value)
"""
    assert p800.run(body) == "-712 0\n"
    code, nanoseconds = p800.run(body, XPURT_DISPATCH_MODE="PROFILING").split()
    assert code == "0"
    assert int(nanoseconds) >= 50_000_000


def test_there_is_no_profiler_to_start_or_stop(p800: Tree):
    assert p800.run("print(xpu.xpu_profiler_start(), xpu.xpu_profiler_stop())") == "-712 -712\n"


def test_device_prints_are_of_the_second_generation(p800: Tree, r200: Tree):
    body = "print(xpu.xpu_kernel_debug(None), xpu.xpu_kernel_debug_reset())"
    assert p800.run(body) == "-712 -712\n"
    assert r200.run(body) == "0 0\n"


@pytest.mark.parametrize(
    "change",
    [
        {"page": "1000"},
        {"pci": "0000:03:00"},
        {"minor": "0"},
        {"model": "-1"},
        {"capacity": "131073"},
        {"driver": "1.2.3.4.5"},
        {"serial": "x" * 32 + ",y"},
        {"surplus": "1"},
    ],
)
def test_a_board_with_a_mistake_is_not_written(
    board_maker: Path, tmp_path: Path, change: dict[str, str]
):
    with pytest.raises(subprocess.CalledProcessError):
        make_board(board_maker, tmp_path, **(P800 | change))
    assert not (tmp_path / "state" / "board").exists()


def test_a_board_needs_every_key(board_maker: Path, tmp_path: Path):
    for key in P800:
        keys = {name: value for name, value in P800.items() if name != key}
        with pytest.raises(subprocess.CalledProcessError) as caught:
            make_board(board_maker, tmp_path, **keys)
        assert f"missing: {key}=" in caught.value.stderr.decode()
