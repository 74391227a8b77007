"""Device memory of the simulated runtime: another address space, strict, with a capacity."""

import signal

import pytest
from sim_runtime_tree import Tree

PAGE = 131072


def test_a_round_trip_brings_back_the_bytes(p800: Tree):
    p800.run("""
a = malloc(1000)
expect(upload(a, bytes(range(250)) * 4), 0)
expect(download(a, 1000), bytes(range(250)) * 4)
expect(download(a + 250, 250), bytes(range(250)))
""")


@pytest.mark.parametrize("touch", ["ctypes.memset(a, 1, 1)", "ctypes.string_at(a, 1)"])
def test_the_host_cannot_touch_device_memory(p800: Tree, touch: str):
    ended = p800.child(f"a = malloc(4096)\nprint('before', flush=True)\n{touch}\nprint('after')")
    assert ended.stdout == "before\n"
    assert ended.returncode == -signal.SIGSEGV


def test_freed_memory_cannot_be_touched_or_copied(p800: Tree):
    p800.run("""
a = malloc(4096)
expect(xpu.xpu_free(a), 0)
expect(xpu.xpu_free(a), -707)
expect(upload(a, b"x"), -707)
expect(xpu.xpu_memcpy(ctypes.create_string_buffer(1), a, 1, D2H), -707)
""")


def test_only_the_start_of_an_allocation_can_be_freed(p800: Tree):
    p800.run("""
a = malloc(4096)
expect(xpu.xpu_free(a + 16), -707)
expect(xpu.xpu_free(None), -707)
expect(xpu.xpu_free(ctypes.addressof(ctypes.create_string_buffer(8))), -707)
expect(xpu.xpu_free(a), 0)
""")


def test_an_allocation_of_no_bytes_or_of_an_unknown_kind_is_refused(p800: Tree):
    p800.run("""
expect(malloc_code(0), -707)
expect(malloc_code(64, kind=2), -707)
expect(malloc_code(64, kind=17), -707)
expect(xpu.xpu_malloc(None, 64, 0), -707)
expect(malloc_code(64, kind=1), 0)
""")


@pytest.mark.parametrize(
    ("to", "source", "size", "kind"),
    [
        ("a", "host", 0, "H2D"),
        ("a", "host", 8, "D2H"),
        ("host", "a", 8, "H2D"),
        ("a", "host", 8, "D2D"),
        ("host", "a", 8, "D2D"),
        ("a", "b", 8, "H2D"),
        ("a", "host", 8, "3"),
        ("a", "host", 8, "-1"),
        ("None", "host", 8, "H2D"),
        ("a", "None", 8, "H2D"),
        ("a", "host", 101, "H2D"),
        ("a + 93", "host", 8, "H2D"),
        ("host", "a", 101, "D2H"),
        ("a", "b", 101, "D2D"),
        ("a - 1", "host", 8, "H2D"),
    ],
)
def test_a_wrong_copy_is_refused_and_moves_nothing(
    p800: Tree, to: str, source: str, size: int, kind: str
):
    p800.run(f"""
a, b = malloc(100), malloc(100)
host = ctypes.create_string_buffer(bytes([9]) * 200)
upload(a, bytes([1]) * 100)
upload(b, bytes([2]) * 100)
expect(xpu.xpu_memcpy({to}, {source}, {size}, {kind}), -707)
expect(xpu.xpu_memcpy_async({to}, {source}, {size}, {kind}, None), -707)
expect(xpu.xpu_wait(None), 0)
expect((download(a, 100), download(b, 100)), (bytes([1]) * 100, bytes([2]) * 100))
expect(host.raw[:200], bytes([9]) * 200)
""")


def test_the_last_byte_asked_for_is_the_last_that_can_be_copied(p800: Tree):
    p800.run("""
a = malloc(100)
expect(upload(a + 92, b"12345678"), 0)
expect(upload(a + 92, b"123456789"), -707)
expect(download(a + 92, 8), b"12345678")
""")


def test_memory_of_another_card_is_refused(p800: Tree):
    p800.run("""
a = malloc(64)
expect(xpu.xpu_set_device(1), 0)
expect(upload(a, b"x"), -707)
expect(xpu.xpu_free(a), -707)
b = malloc(64)
expect(xpu.xpu_memcpy(b, a, 64, D2D), -707)
expect(xpu.xpu_set_device(0), 0)
expect(upload(a, b"12345678"), 0)
expect(xpu.xpu_memcpy_peer(1, b, 0, a, 8), 0)
expect(xpu.xpu_memcpy_peer(1, a, 0, b, 8), -707)
expect(xpu.xpu_memcpy_peer(0, a, 0, a, 8), -707)
expect(xpu.xpu_memcpy_peer(2, b, 0, a, 8), -701)
expect(xpu.xpu_set_device(1), 0)
expect(download(b, 8), b"12345678")
""")


def test_new_memory_is_poisoned_and_old_bytes_are_gone(p800: Tree):
    p800.run("""
a = malloc(4 * MIB)
upload(a, bytes(4 * MIB))
expect(xpu.xpu_free(a), 0)
b = malloc(4 * MIB)
expect(b, a)
expect(download(b, 4 * MIB), b"\\xff" * (4 * MIB))
c = malloc(64 * MIB)
expect(download(c, MIB), b"\\xff" * MIB)
expect(download(c + 63 * MIB, MIB), b"\\xff" * MIB)
""")


def test_whole_pages_count_against_the_capacity(p800: Tree):
    p800.run(f"""
free = 96 * GIB
a = malloc(1)
expect(malloc_code(free), -705)
expect(malloc_code(free - {PAGE} + 1), -705)
big = malloc(free - {PAGE})
expect(malloc_code(1), -705)
expect(xpu.xpu_free(a), 0)
malloc({PAGE})
expect(malloc_code(1), -705)
expect(malloc_code(2**64 - 1), -705)
""")


def test_both_cards_and_both_memories_have_their_own_capacity(p800: Tree):
    p800.run("""
malloc(96 * GIB)
expect(malloc_code(1), -705)
malloc(96 * MIB, kind=1)
expect(malloc_code(1, kind=1), -705)
xpu.xpu_set_device(1)
malloc(96 * GIB)
""")


def test_holes_are_joined_and_used_again(p800: Tree):
    p800.run("""
parts = [malloc(24 * GIB) for _ in range(4)]
for part in (parts[0], parts[2], parts[1]):
    expect(xpu.xpu_free(part), 0)
expect(malloc(72 * GIB), parts[0])
expect(malloc_code(1), -705)
""")


def test_two_holes_are_not_one(p800: Tree):
    p800.run("""
parts = [malloc(24 * GIB) for _ in range(4)]
xpu.xpu_free(parts[0])
xpu.xpu_free(parts[2])
expect(malloc_code(48 * GIB), -705)
expect(malloc(24 * GIB), parts[0])
expect(malloc(24 * GIB), parts[2])
""")


def test_a_plain_allocation_stays_inside_a_block_of_4_gib(r200: Tree):
    r200.run("""
expect(malloc_code(4 * GIB + 1), -705)
first = malloc(3 * GIB)
second = malloc(3 * GIB)
expect(second - first, 4 * GIB)
expect(malloc(GIB), first + 3 * GIB)
expect(malloc(8 * GIB, kind=17) - first, 7 * GIB)
""")


def test_freeing_gives_host_memory_back(p800: Tree):
    p800.run("""
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
before = resident()
a = malloc(16 * MIB)
assert resident() - before >= 16 * MIB
expect(xpu.xpu_free(a), 0)
assert resident() - before < 4 * MIB
""")


def test_locked_host_memory_has_its_rules(p800: Tree):
    p800.run("""
host = ctypes.create_string_buffer(8192)
start = ctypes.addressof(host)
expect(xpu.xpu_host_register(start, 4096, 1), -707)
expect(xpu.xpu_host_register(start, 0, 0), -707)
expect(xpu.xpu_host_register(start, 4096, 0), 0)
expect(xpu.xpu_host_register(start + 4095, 4096, 0), -816)
expect(xpu.xpu_host_register(start + 4096, 4096, 0), 0)
expect(xpu.xpu_host_unregister(start), 0)
expect(xpu.xpu_host_unregister(start), -707)
locked = made(xpu.xpu_host_alloc, 4096, 0)
ctypes.memset(locked, 7, 4096)
expect(upload(malloc(64), ctypes.string_at(locked, 64)), 0)
expect(xpu.xpu_host_unregister(locked), -707)
expect(xpu.xpu_host_free(locked), 0)
expect(xpu.xpu_host_free(locked), -707)
expect(xpu.xpu_host_alloc(byref(P()), 4096, 1), -707)
""")


def test_mappable_memory_is_seen_from_both_sides(p800: Tree):
    p800.run("""
a = malloc(8192, kind=16)
view = made(xpu.xpu_mmap, a, 8192)
ctypes.memset(view + 100, 5, 3)
expect(download(a + 100, 3), b"\\5\\5\\5")
expect(xpu.xpu_mmap(byref(P()), malloc(8192), 8192), -707)
expect(xpu.xpu_mmap(byref(P()), a, 8193), -707)
""")
