"""The telemetry library through ctypes: what it tells of what other processes hold and do."""

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from sim_trees import NATIVE, SimTree, shared_tree, with_accounts

MIB, PAGE = 1 << 20, 131072

ML = """
import ctypes, json, sys, time
from ctypes import byref, c_char_p, c_int, c_uint, c_uint64, c_void_p, create_string_buffer
ml = ctypes.CDLL("libxpuml.so.1")
def struct(numbers, wide, more):
    fields = [(n, c_uint) for n in numbers.split()] + [(n, c_uint64) for n in wide.split()]
    return type("S", (ctypes.Structure,), {"_fields_": [*fields, ("more", c_uint64 * more)]})
Memory = struct("", "page total free used l3_page l3_total l3_free l3_used", 8)
Rates = struct("xpu memory", "", 15)
class Process(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("used", c_uint64), ("l3_used", c_uint64), ("root", c_uint),
                ("more32", c_uint), ("more", c_uint64 * 12)]
assert ctypes.sizeof(Memory) == ctypes.sizeof(Rates) == ctypes.sizeof(Process) == 128
def handle(index=0):
    found = c_void_p()
    code = ml.xpumlDeviceGetHandleByIndex(c_uint(index), byref(found))
    return code or found
def ask(name, device, result, *between):
    code = getattr(ml, "xpumlDeviceGet" + name)(device, *between, byref(result))
    return code or result
def memory(index=0):
    m = ask("MemoryInfo", handle(index), Memory())
    return m.total, m.used, m.free, m.l3_total, m.l3_used, m.l3_free
def processes(index=0, room=100):
    infos, count = (Process * max(room, 1))(), c_uint(room)
    code = ml.xpumlDeviceGetComputeRunningProcesses(handle(index), byref(count), infos)
    if code:
        return code, count.value
    return 0, [(p.pid, p.used, p.l3_used) for p in infos[:count.value]]
"""

HOLDER = """
import ctypes, os, sys
from ctypes import byref, c_uint64, c_void_p
xpu = ctypes.CDLL("libxpurt.so")
xpu.xpu_malloc.argtypes = [c_void_p, c_uint64, ctypes.c_int]
xpu.xpu_free.argtypes = [c_void_p]
held = []
def hold(size, kind=0):
    address = c_void_p()
    assert xpu.xpu_malloc(byref(address), size, kind) == 0
    held.append(address)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def tree(tmp_path: Path) -> SimTree:
    return with_accounts(shared_tree(), tmp_path / "state")


class Holder:
    """A process that holds device memory, and does what it is told line by line."""

    def __init__(self, tree: SimTree, **variables: str):
        self.process = tree.start(HOLDER, **variables)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def do(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


def told(tree: SimTree, expression: str) -> object:
    """The value of an expression in a process with the library initialized."""
    code = f"{ML}\nassert ml.xpumlInit() == 0\nprint(json.dumps({expression}))"
    return json.loads(tree.run(code))


def test_nothing_answers_before_the_library_is_initialized(tree: SimTree):
    tree.run(f"""{ML}
text, number = create_string_buffer(80), c_uint()
assert ml.xpumlShutdown() == 1
assert ml.xpumlDeviceGetCount(byref(number)) == 1
assert ml.xpumlSystemGetDriverVersion(text, 80) == 1
assert handle() == 1
assert ml.xpumlDeviceGetTemperature(None, 0, byref(number)) == 1
assert ml.xpumlSystemGetXPUMLVersion(text, 80) == 0 and text.value == b"5.0.21"
""")


def test_initializations_are_counted(tree: SimTree):
    tree.run(f"""{ML}
number = c_uint()
assert [ml.xpumlInit(), ml.xpumlInit()] == [0, 0]
device = handle()
assert ml.xpumlShutdown() == 0 and ml.xpumlDeviceGetCount(byref(number)) == 0
assert ml.xpumlShutdown() == 0 and ml.xpumlDeviceGetCount(byref(number)) == 1
assert ml.xpumlShutdown() == 1
assert ml.xpumlInit() == 0 and ml.xpumlDeviceGetCount(byref(number)) == 0 and number.value == 2
""")


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_without_a_driver_it_says_so_and_works_once_there_is_one(tree: SimTree, damage: str):
    board = tree.state / "board"
    kept = board.read_bytes()
    if damage == "gone":
        board.unlink()
    else:
        board.write_bytes(kept[:100] if damage == "cut" else b"\1" * len(kept))
    with tree.start(
        f"{ML}\nprint(ml.xpumlInit(), flush=True)\nsys.stdin.read()\nprint(ml.xpumlInit())"
    ) as child:
        assert child.stdout.readline() == "9\n"
        board.write_bytes(kept)
        assert child.communicate(timeout=60)[0] == "0\n"


def test_arguments_are_checked(tree: SimTree):
    tree.run(f"""{ML}
assert ml.xpumlInit() == 0
number, text, foreign = c_uint(), create_string_buffer(80), c_void_p(ctypes.addressof(c_uint(0)))
assert ml.xpumlDeviceGetCount(None) == 2
assert ml.xpumlSystemGetDriverVersion(None, 80) == 2
assert ml.xpumlSystemGetDriverVersion(text, 9) == 7
assert ml.xpumlSystemGetDriverVersion(text, 10) == 0 and text.value == b"5.0.21.21"
assert handle(2) == 2 and ml.xpumlDeviceGetHandleByIndex(0, None) == 2
assert ml.xpumlDeviceGetMemoryInfo(handle(), None) == 2
assert ml.xpumlDeviceGetMemoryInfo(foreign, byref(Memory())) == 2
assert ml.xpumlDeviceGetMemoryInfo(None, byref(Memory())) == 2
assert ml.xpumlDeviceGetSerial(handle(), text, 15) == 7
assert ml.xpumlDeviceGetSerial(handle(1), text, 16) == 0 and text.value == b"SIM000000000001"
assert ml.xpumlDeviceGetTemperature(handle(), 1, byref(number)) == 2
assert ml.xpumlDeviceGetClockInfo(handle(), 1, byref(number)) == 3
assert ml.xpumlDeviceSetSriovVfNum(handle(), 2) == 3
""")


def test_a_card_tells_what_it_is(tree: SimTree):
    tree.run(f"""{ML}
assert ml.xpumlInit() == 0
class Pci(ctypes.Structure):
    _fields_ = [*((n, c_uint) for n in "domain bus device function id sub".split()),
                ("text", ctypes.c_char * 32), ("more", c_uint64 * 9)]
pci = ask("PciInfo", handle(1), Pci())
assert (pci.domain, pci.bus, pci.device, pci.function) == (0, 5, 0, 0)
assert pci.text == b"00000000:05:00.0" and pci.id == 0x36881D22
assert ask("ClockInfo", handle(), c_uint(), 0).value == 1450
assert ask("Architecture", handle(), c_uint()).value == 3
assert ask("BoardId", handle(1), c_uint()).value == 1
assert ask("State", handle(), c_uint()).value == 0
assert ask("HostVxpuMode", handle(), c_uint(7)).value == 0
numbers = (c_uint * 32)()
assert ml.xpumlDeviceGetAttributes(handle(), byref(numbers)) == 0
assert list(numbers[:5]) == [3, 0, 300, 12, 12]
assert list(numbers[10:14]) == [98304, 0, 96, 0]
assert bytes(numbers)[56:72] == b"SIM000000000000\\0"
""")


def test_every_code_has_a_text_of_its_own(tree: SimTree):
    texts = told(
        tree,
        "[text(n).decode() for n in (*range(25), 999, 777)]".replace(
            "text(", "ctypes.CFUNCTYPE(c_char_p, c_int)(('xpumlErrorString', ml))("
        ),
    )
    assert len(set(texts[:26])) == 26 and "" not in texts
    assert texts[26] == texts[25]


def test_memory_is_what_another_process_holds_in_whole_pages(tree: SimTree):
    total, l3 = 98304 * MIB, 96 * MIB
    assert told(tree, "memory()") == [total, 0, total, l3, 0, l3]
    with Holder(tree) as holder:
        holder.do(f"hold({100 * MIB})")
        assert told(tree, "memory()") == [total, 100 * MIB, total - 100 * MIB, l3, 0, l3]
        holder.do("hold(1)")
        used = 100 * MIB + PAGE
        assert told(tree, "memory()")[1:3] == [used, total - used]
        assert told(tree, "memory(1)")[1] == 0
        assert told(tree, "processes()") == [0, [[holder.process.pid, used, 0]]]
        assert told(tree, "ask('State', handle(), c_uint()).value") == 201
        holder.do("xpu.xpu_free(held.pop(0))")
        assert told(tree, "memory()")[1] == PAGE


def test_l3_is_counted_apart(tree: SimTree):
    with Holder(tree) as holder:
        holder.do(f"hold({4 * MIB}, 1)")
        total, used, _, l3, l3_used, l3_free = told(tree, "memory()")
        assert (used, l3_used, l3_free) == (0, 4 * MIB, l3 - 4 * MIB)
        assert total == 98304 * MIB


def test_what_a_killed_process_held_is_given_back(tree: SimTree):
    with Holder(tree) as holder, Holder(tree) as other:
        holder.do(f"hold({64 * MIB})")
        other.do(f"hold({32 * MIB})")
        assert told(tree, "memory()")[1] == 96 * MIB
        holder.process.send_signal(signal.SIGKILL)
        holder.process.wait()
        assert told(tree, "memory()")[1] == 32 * MIB
        assert told(tree, "processes()") == [0, [[other.process.pid, 32 * MIB, 0]]]


def test_too_little_room_for_the_processes_is_told_with_the_number(tree: SimTree):
    with Holder(tree) as one, Holder(tree) as two:
        for holder in (one, two):
            holder.do("hold(1)")
        assert told(tree, "processes(0, 0)") == told(tree, "processes(0, 1)") == [7, 2]
        assert len(told(tree, "processes(0, 2)")[1]) == 2
        assert told(tree, "processes(1, 0)") == [0, []]


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kernels of our own, queued as the operator libraries do it."""
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    sources = [Path(__file__).with_name("sim_runtime_kernels.cpp")]
    runtime = shared_tree() / "runtime" / "lib" / "libxpurt.so"
    include = [f"-I{NATIVE / folder}" for folder in ("include", "runtime")]
    flags = ["-std=c++17", "-shared", "-fPIC", "-o", library]
    subprocess.run(["g++", *flags, *include, *sources, runtime], check=True)
    return str(library)


def test_a_working_card_shows_load_heat_and_power_and_an_idle_one_does_not(
    tree: SimTree, kernels: str
):
    values = "[ask('UtilizationRates', handle(i), Rates()).xpu for i in (0, 1)]"
    heat = "[ask('Temperature', handle(i), c_uint(), 0).value for i in (0, 1)]"
    power = "[ask('PowerUsage', handle(i), c_uint()).value for i in (0, 1)]"
    assert told(tree, f"{values} + {heat} + {power}") == [0, 0, 36, 36, 86000, 86000]
    with Holder(tree) as holder:
        holder.do(f"probe = ctypes.CDLL({kernels!r}); hold(1)")
        holder.do("[probe.probe_sleep(None, 5) for _ in range(20000)]")
        busy = told(tree, f"{values} + {heat} + {power}")
        assert int(tree.smi("-m", "-i", "0").split()[19]) > 20
    assert 20 < busy[0] <= 100 and busy[1] == 0
    assert 36 < busy[2] <= 65 and busy[3] == 36
    assert 86000 < busy[4] <= 400000 and busy[5] == 86000


def test_a_lost_card_is_told_as_lost_and_the_other_is_not(tree: SimTree, kernels: str):
    with Holder(tree, XPUSIM_FAULTS="lost") as holder:
        holder.do(f"hold(4096); code = ctypes.CDLL({kernels!r}).probe_empty(None, 1)")
        holder.do("assert abs(code) == 802, code")
        assert told(tree, "handle(0)") == 15
        assert told(tree, "memory(1)")[1] == 0
        lines = tree.smi("-m").splitlines()
        assert [line.split()[2] for line in lines] == ["1"]
        assert "XPU is lost" in tree.smi("-q") and "| lost " in tree.smi()
        assert tree.smi("-L").splitlines()[0] == "XPU 0: P800 OAM (lost)"
    assert told(tree, "memory()")[1] == 0


def test_a_handle_does_not_outlive_its_card(tree: SimTree, kernels: str):
    code = f"""{ML}
assert ml.xpumlInit() == 0
device = handle(0)
print("ready", flush=True)
sys.stdin.read()
print(ml.xpumlDeviceGetMemoryInfo(device, byref(Memory())))
"""
    with tree.start(code) as child, Holder(tree, XPUSIM_FAULTS="lost") as holder:
        assert child.stdout.readline() == "ready\n"
        holder.do(f"hold(4096); ctypes.CDLL({kernels!r}).probe_empty(None, 1)")
        assert child.communicate("", timeout=60)[0] == "15\n"


def test_the_library_works_without_the_runtime_and_without_its_folder(tmp_path: Path):
    tree = shared_tree()
    shutil.copy(tree / "runtime" / "lib" / "libxpuml.so.1", tmp_path)
    code = 'import ctypes\nprint(ctypes.CDLL("./libxpuml.so.1").xpumlInit())'
    state = {"XPUSIM_STATE": str(tree / "state"), "PATH": "/usr/bin:/bin"}
    for environment, answer in ((state, "0\n"), ({"PATH": state["PATH"]}, "9\n")):
        ended = subprocess.run(
            ["python3", "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stdout == answer
