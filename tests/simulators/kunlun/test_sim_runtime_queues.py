"""Queues and events of the simulated runtime: late, in order, never waited for by itself."""

from sim_runtime_tree import Tree

SLOW = "queue_delay_us=300000"
"""An idle queue starts so late that a missing wait shows, even on a busy machine."""


def test_a_copy_to_the_host_does_not_wait_for_a_kernel(p800: Tree):
    p800.run(
        """
a = malloc(64)
upload(a, bytes(64))
expect(probe.probe_fill(None, a, 64, 7), 0)
time.sleep(0.02)
expect(download(a, 64), bytes(64))
expect(xpu.xpu_wait(None), 0)
expect(download(a, 64), bytes([7]) * 64)
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_the_default_delay_shows_a_missing_wait_too(p800: Tree):
    p800.run("""
a = malloc(64)
upload(a, bytes(64))
early = 0
for _ in range(20):
    upload(a, bytes(64))
    probe.probe_fill(None, a, 64, 7)
    early += download(a, 64) == bytes(64)
    expect(xpu.xpu_wait(None), 0)
    expect(download(a, 64), bytes([7]) * 64)
assert early > 0, "no missing wait ever showed"
""")


def test_a_copy_to_the_device_does_not_wait_for_a_kernel(p800: Tree):
    p800.run(
        """
a = malloc(64)
probe.probe_fill(None, a, 64, 7)
expect(upload(a, bytes(64)), 0)
xpu.xpu_wait(None)
expect(download(a, 64), bytes([7]) * 64)
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_a_copy_inside_a_card_is_queued(p800: Tree):
    p800.run(
        """
a, b = malloc(64), malloc(64)
upload(a, bytes(64))
expect(xpu.xpu_memcpy(b, a, 64, D2D), 0)
expect(download(b, 64), b"\\xff" * 64)
expect(xpu.xpu_wait(None), 0)
expect(download(b, 64), bytes(64))
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_an_asynchronous_copy_runs_in_the_order_of_its_queue(p800: Tree):
    p800.run(
        """
a, stream = malloc(64), made(xpu.xpu_stream_create)
host = ctypes.create_string_buffer(64)
probe.probe_fill(stream, a, 64, 7)
expect(xpu.xpu_memcpy_async(host, a, 64, D2H, stream), 0)
probe.probe_fill(stream, a, 64, 8)
expect(host.raw, bytes(64))
expect(xpu.xpu_wait(stream), 0)
expect(host.raw, bytes([7]) * 64)
expect(download(a, 64), bytes([8]) * 64)
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_wait_waits_for_one_queue(p800: Tree):
    p800.run(
        """
a, stream = malloc(64), made(xpu.xpu_stream_create)
upload(a, bytes(64))
probe.probe_sleep(stream, 300)
probe.probe_fill(stream, a, 64, 7)
expect(xpu.xpu_wait(None), 0)
expect(download(a, 64), bytes(64))
expect(xpu.xpu_wait(stream), 0)
expect(download(a, 64), bytes([7]) * 64)
"""
    )


def test_an_event_orders_two_queues(p800: Tree):
    script = """
a = malloc(64)
first, second = made(xpu.xpu_stream_create), made(xpu.xpu_stream_create)
event = made(xpu.xpu_event_create)
expect(xpu.xpu_stream_wait_event(second, event), -707)
probe.probe_sleep(first, 300)
probe.probe_fill(first, a, 64, 1)
expect(xpu.xpu_event_record(event, first), 0)
expect(xpu.xpu_stream_wait_event(second, event), 0)
probe.probe_fill(second, a, 64, 2)
expect(xpu.xpu_wait(second), 0)
xpu.xpu_wait(first)
print(download(a, 1)[0])
"""
    assert p800.run(script) == "2\n"
    assert p800.run(script, XPUSIM_FAULTS="no_event_order") == "1\n"


def test_an_event_can_be_waited_for_and_asked(p800: Tree):
    p800.run(
        """
a, event = malloc(64), made(xpu.xpu_event_create)
expect(xpu.xpu_event_query(event), 0)
expect(xpu.xpu_event_wait(event), 0)
upload(a, bytes(64))
probe.probe_fill(None, a, 64, 7)
expect(xpu.xpu_event_record(event, None), 0)
expect(xpu.xpu_event_query(event), -716)
expect(xpu.xpu_event_wait(event), 0)
expect(xpu.xpu_event_query(event), 0)
expect(download(a, 64), bytes([7]) * 64)
expect(xpu.xpu_event_destroy(event), 0)
expect(xpu.xpu_event_destroy(event), -707)
expect(xpu.xpu_event_query(event), -707)
expect(xpu.xpu_event_record(event, None), -707)
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_streams_and_events_belong_to_a_card(p800: Tree):
    p800.run("""
stream, event = made(xpu.xpu_stream_create), made(xpu.xpu_event_create)
expect(xpu.xpu_set_device(1), 0)
expect(probe.probe_empty(stream, 1), -707)
expect(xpu.xpu_launch_config(1, 1, stream), -707)
expect(xpu.xpu_event_record(event, None), -707)
expect(xpu.xpu_event_wait(event), -707)
expect(xpu.xpu_wait(stream), 0)
""")


def test_a_closed_stream_runs_what_it_has_and_takes_no_more(p800: Tree):
    p800.run("""
a, stream = malloc(64), made(xpu.xpu_stream_create)
probe.probe_fill(stream, a, 64, 7)
expect(xpu.xpu_stream_destroy(stream), 0)
expect(xpu.xpu_stream_destroy(stream), -717)
expect(xpu.xpu_wait(stream), -717)
expect(probe.probe_empty(stream, 1), -717)
expect(xpu.xpu_wait(123456), -707)
deadline = time.monotonic() + 30
while download(a, 64) != bytes([7]) * 64:
    assert time.monotonic() < deadline
    time.sleep(0.01)
""")


def test_a_process_has_no_more_than_256_streams(p800: Tree):
    p800.run("""
streams = [made(xpu.xpu_stream_create) for _ in range(256)]
expect(xpu.xpu_stream_create(byref(P())), -716)
expect(xpu.xpu_stream_destroy(streams[0]), 0)
made(xpu.xpu_stream_create)
""")


def test_the_current_device_belongs_to_the_thread(p800: Tree):
    p800.run("""
seen = {}
def device():
    number = INT()
    expect(xpu.xpu_current_device(byref(number)), 0)
    return number.value
def other():
    seen["before"] = device()
    xpu.xpu_set_device(0)
    seen["after"] = device()
expect(xpu.xpu_set_device(1), 0)
thread = threading.Thread(target=other)
thread.start()
thread.join()
expect((seen, device()), ({"before": 0, "after": 0}, 1))
expect(xpu.xpu_set_device(2), -701)
expect(xpu.xpu_set_device(-1), -701)
expect(xpu.xpu_set_device(xpu.DEVICE_SIMULATOR(0)), -711)
expect(device(), 1)
""")


def test_a_kernel_exception_surfaces_at_the_next_wait_and_stays(p800: Tree):
    ended = p800.child("""
a, stream = malloc(64), made(xpu.xpu_stream_create)
expect(probe.probe_fill(stream, a, 65, 7), 0)
expect(upload(a, bytes(64)), 0)
expect(xpu.xpu_wait(stream), -714)
expect(xpu.xpu_wait(stream), -714)
expect(probe.probe_empty(stream, 1), -712)
expect(probe.probe_empty(None, 1), 0)
expect(xpu.xpu_wait(None), 0)
made(xpu.xpu_stream_create)
""")
    assert ended.returncode == 0, ended.stderr
    assert "device 0: fill: 65 bytes at" in ended.stderr


def test_an_exception_before_a_recorded_event_taints_every_queue_of_the_card(p800: Tree):
    p800.run(
        """
xpu.xpu_set_device(1)
other_card = made(xpu.xpu_stream_create)
xpu.xpu_set_device(0)
a, failing, innocent = malloc(64), made(xpu.xpu_stream_create), made(xpu.xpu_stream_create)
event = made(xpu.xpu_event_create)
probe.probe_fill(failing, a, 65, 7)
expect(xpu.xpu_event_record(event, failing), 0)
expect(xpu.xpu_stream_wait_event(innocent, event), 0)
probe.probe_fill(innocent, a, 64, 7)
expect(xpu.xpu_wait(failing), -714)
expect((xpu.xpu_event_wait(event), xpu.xpu_event_query(event)), (-720, -720))
expect(xpu.xpu_wait(innocent), -720)
deadline = time.monotonic() + 30
while xpu.xpu_wait(None) != -720:
    assert time.monotonic() < deadline
    time.sleep(0.01)
expect(probe.probe_empty(None, 1), -712)
expect(xpu.xpu_stream_create(byref(P())), -720)
expect(xpu.xpu_wait(failing), -714)
expect(download(a, 64), b"\\xff" * 64)
xpu.xpu_set_device(1)
expect(xpu.xpu_wait(other_card), 0)
expect(xpu.xpu_wait(None), 0)
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_a_kernel_on_memory_that_was_freed_is_an_exception(p800: Tree):
    p800.run(
        """
a = malloc(64)
probe.probe_fill(None, a, 64, 7)
expect(xpu.xpu_free(a), 0)
expect(xpu.xpu_wait(None), -714)
""",
        XPUSIM_FAULTS=SLOW,
    )


def test_a_kernel_cannot_reach_memory_of_another_card_or_of_the_host(p800: Tree):
    p800.run("""
a = malloc(64)
xpu.xpu_set_device(1)
probe.probe_fill(None, a, 64, 7)
expect(xpu.xpu_wait(None), -714)
xpu.xpu_set_device(0)
stream = made(xpu.xpu_stream_create)
host = ctypes.create_string_buffer(64)
probe.probe_fill(stream, ctypes.addressof(host), 64, 7)
expect(xpu.xpu_wait(stream), -714)
expect((probe.probe_is_device(a), probe.probe_is_device(ctypes.addressof(host))), (1, 0))
expect(probe.probe_reach_outside(a), 1)
""")


def test_waiting_costs_no_processor_time(p800: Tree):
    p800.run("""
probe.probe_sleep(None, 2000)
before = time.process_time()
expect(xpu.xpu_wait(None), 0)
spent = time.process_time() - before
assert spent < 0.1, spent
""")


def test_many_launches_run_in_order_and_all_run(p800: Tree):
    p800.run("""
a = malloc(64)
for i in range(2000):
    probe.probe_fill(None, a, 64, i % 251)
expect(probe.probe_empty(None, 50000), 0)
expect(xpu.xpu_wait(None), 0)
expect(download(a, 1)[0], 1999 % 251)
""")


def test_a_process_ends_though_its_queues_are_full(p800: Tree):
    body = "probe.probe_sleep(None, 60000)\nprobe.probe_empty(None, 10)"
    assert p800.child(body, timeout=30).returncode == 0


def test_a_forked_child_is_told_that_the_runtime_is_not_its_own(p800: Tree):
    p800.run("""
a = malloc(64)
child = os.fork()
if child == 0:
    os._exit(0 if malloc_code(64) == -702 and xpu.xpu_wait(None) == -702 else 1)
expect(os.waitpid(child, 0)[1], 0)
expect(upload(a, b"x"), 0)
""")


def test_device_code_cannot_be_launched_and_the_order_of_calls_is_checked(p800: Tree):
    p800.run("""
code = ctypes.addressof(ctypes.create_string_buffer(64))
expect(xpu.xpu_launch_async(code), -707)
expect(xpu.xpu_launch_config(0, 64, None), -707)
expect(xpu.xpu_launch_config(12, 64, None), 0)
value = c_uint32(5)
expect(xpu.xpu_launch_argument_set(byref(value), 4, 2), -707)
expect(xpu.xpu_launch_argument_set(byref(value), 4, 4), 0)
for create in (xpu.xpu_create_cl_func, xpu.xpu_create_sd_func):
    expect(create(byref(P()), code, 64, 0, 1, 0, None, False), -712)
    expect(create(None, code, 64, 0, 1, 0, None, False), -707)
    expect(create(byref(P()), code, 0, 0, 1, 0, None, False), -707)
expect(xpu.xpu_launch_async(code), -708)
""")
