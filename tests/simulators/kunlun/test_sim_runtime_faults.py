"""Faults on demand in the simulated runtime."""

import re
import signal
import subprocess

import pytest
from sim_runtime_tree import NATIVE, Tree

HANG = "print('waiting', flush=True)\nxpu.xpu_wait(None)\nprint('back')"


def assert_never_returns(child: subprocess.Popen) -> None:
    """Kills the child, which must be in its wait until then."""
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=1)
    finally:
        child.kill()
        rest, _ = child.communicate()
    assert rest == ""
    assert child.returncode == -signal.SIGKILL


def test_the_named_allocation_fails(p800: Tree):
    body = "print(*(malloc_code(64) for _ in range(4)))"
    assert p800.run(body, XPUSIM_FAULTS="oom@3") == "0 0 -705 0\n"
    assert p800.run(body, XPUSIM_FAULTS="oom") == "-705 -705 -705 -705\n"
    assert p800.run(body) == "0 0 0 0\n"


def test_the_named_launch_ends_in_an_exception(p800: Tree):
    body = """
codes = []
for _ in range(4):
    stream = made(xpu.xpu_stream_create)
    expect(probe.probe_empty(stream, 1), 0)
    codes.append(xpu.xpu_wait(stream))
print(*codes)
"""
    assert p800.run(body, XPUSIM_FAULTS="kexception@2") == "0 -714 0 0\n"


def test_the_named_launch_hangs_and_the_wait_with_it(p800: Tree):
    p800.run("probe.probe_empty(None, 1)\nexpect(xpu.xpu_wait(None), 0)", XPUSIM_FAULTS="hang@2")
    assert_never_returns(p800.start("probe.probe_empty(None, 2)\n" + HANG, XPUSIM_FAULTS="hang@2"))


def test_a_process_with_a_hung_kernel_ends(p800: Tree):
    ended = p800.child("probe.probe_empty(None, 1)\ntime.sleep(0.1)", XPUSIM_FAULTS="hang")
    assert ended.returncode == 0


def test_every_kernel_of_a_sick_card_hangs_and_copies_work(p800: Tree):
    p800.run(
        """
probe.probe_empty(None, 1)
expect(xpu.xpu_wait(None), 0)
xpu.xpu_set_device(1)
a = malloc(64)
expect(upload(a, bytes(64)), 0)
expect(download(a, 64), bytes(64))
""",
        XPUSIM_FAULTS="sick=1",
    )
    body = "xpu.xpu_set_device(1)\nprobe.probe_empty(None, 1)\n" + HANG
    assert_never_returns(p800.start(body, XPUSIM_FAULTS="sick=1"))


def test_a_sick_card_is_named_as_the_board_counts(p800: Tree):
    body = "probe.probe_empty(None, 1)\n" + HANG
    tree = p800.with_variables(XPUSIM_FAULTS="sick=1", XPU_VISIBLE_DEVICES="1")
    assert_never_returns(tree.start(body))


def test_a_lost_card_answers_every_call_with_an_error(p800: Tree):
    other = p800.start(
        """
a = malloc(64)
expect(probe.probe_empty(None, 1), 0)
expect(probe.probe_empty(None, 1), -802)
expect(xpu.xpu_wait(None), -802)
expect(upload(a, b"x"), -802)
expect(malloc_code(64), -802)
expect(xpu.xpu_set_device(0), -802)
expect(xpu.xpu_set_device(1), 0)
expect(malloc_code(64), 0)
print("lost", flush=True)
sys.stdin.readline()
""",
        XPUSIM_FAULTS="lost@2",
    )
    assert other.stdout is not None
    line = other.stdout.readline()
    try:
        meanwhile = p800.run("print(malloc_code(64), xpu.xpu_set_device(1))")
    finally:
        _, error = other.communicate("\n")
    assert (line, other.returncode) == ("lost\n", 0), error
    assert meanwhile == "-802 0\n"
    p800.run("malloc(64)")


def test_a_wait_in_progress_hears_of_a_lost_card(p800: Tree):
    p800.run(
        """
stream, codes = made(xpu.xpu_stream_create), []
probe.probe_sleep(stream, 60000)
thread = threading.Thread(target=lambda: codes.append(xpu.xpu_wait(stream)))
thread.start()
time.sleep(0.5)
expect(codes, [])
expect(probe.probe_empty(None, 1), -802)
thread.join(30)
expect(codes, [-802])
""",
        XPUSIM_FAULTS="lost@2",
    )


def test_who_waits_for_an_event_hears_of_a_lost_card(p800: Tree):
    p800.run(
        """
stream, event, codes = made(xpu.xpu_stream_create), made(xpu.xpu_event_create), []
probe.probe_sleep(stream, 60000)
expect(xpu.xpu_event_record(event, stream), 0)
expect(xpu.xpu_event_query(event), -716)
thread = threading.Thread(target=lambda: codes.append(xpu.xpu_event_wait(event)))
thread.start()
time.sleep(0.5)
expect(codes, [])
expect(probe.probe_empty(None, 1), -802)
thread.join(30)
expect(codes, [-802])
expect((xpu.xpu_event_wait(event), xpu.xpu_event_query(event)), (-802, -802))
""",
        XPUSIM_FAULTS="lost@2",
    )


def test_the_named_copy_is_short_and_reports_success(p800: Tree):
    p800.run(
        """
a = malloc(100)
expect(upload(a, bytes(100)), 0)
expect(upload(a, bytes([5]) * 100), 0)
expect(download(a, 100), bytes([5]) * 75 + bytes(25))
expect(upload(a, bytes([6]) * 100), 0)
expect(download(a, 100), bytes([6]) * 100)
""",
        XPUSIM_FAULTS="short_copy@2",
    )


def test_copies_over_a_slow_link_take_their_time(p800: Tree):
    body = """
host = bytes(2 * MIB)
took = []
for device in (0, 1):
    xpu.xpu_set_device(device)
    a = malloc(2 * MIB)
    start = time.monotonic()
    expect(upload(a, host), 0)
    took.append(time.monotonic() - start)
assert took[1] >= 2 * MIB / 2e6, took
assert took[0] < took[1], took
"""
    p800.run(body, XPUSIM_FAULTS="slow_link=1:2")


def test_several_faults_can_be_armed(p800: Tree):
    p800.run(
        """
expect(malloc_code(64), -705)
expect(probe.probe_fault(b"oom"), 1)
expect(probe.probe_fault(b"no_event_order"), 1)
expect(probe.probe_fault(b"hang"), 0)
""",
        XPUSIM_FAULTS="oom@1,no_event_order",
    )


@pytest.mark.parametrize(
    "text",
    [
        "oomm",
        "oom@0",
        "oom@",
        "oom@x",
        "oom=3",
        "hang@-1",
        "oom@1,oom@2",
        "sick",
        "sick=x",
        "sick=4294967296",
        "sick@1",
        "queue_delay_us=",
        "slow_link=1",
        "slow_link=1:0",
        "no_event_order=1",
        ",oom",
    ],
)
def test_a_misspelt_fault_stops_the_process(p800: Tree, text: str):
    ended = p800.child("malloc_code(64)\nprint('went on')", XPUSIM_FAULTS=text)
    assert ended.returncode == -signal.SIGABRT
    assert "XPUSIM_FAULTS: cannot use" in ended.stderr
    assert "slow_link=device:MBps" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("text", "card"), [("sick=2", 2), ("oom@9,sick=7", 7), ("slow_link=2:50", 2)]
)
def test_a_fault_of_a_card_that_is_not_there_stops_the_process(p800: Tree, text: str, card: int):
    ended = p800.child("malloc_code(64)\nprint('went on')", XPUSIM_FAULTS=text)
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "")
    name = text.split(",")[-1]
    assert f"XPUSIM_FAULTS: {name}: there is no card {card}, the board has 2" in ended.stderr


def test_the_list_for_people_is_the_list_of_the_library(p800: Tree):
    ended = p800.child("malloc_code(64)", XPUSIM_FAULTS="?")
    known = {line.split()[0].split("=")[0] for line in ended.stderr.splitlines() if line[:1] == " "}
    rows = (NATIVE / "runtime" / "FAULTS.md").read_text().splitlines()
    told = {m.group(1) for row in rows if (m := re.match(r"\| `(\w+)", row))}
    assert known == told
    assert len(known) == 10
