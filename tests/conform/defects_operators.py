"""Operators that are wrong in the ways in which vendors' operators have been."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anychip.chips.fake.registration import FakeChip
from anychip.contract.dtype import DType
from anychip.contract.operators import Call, Implementation, Launch
from anychip.contract.tensor import IndexPair, Tensor
from anychip.hostops import NUMPY_DTYPES
from conform.defective import afterwards, around, elements, on_output, other_attrs, without_input


def window_of_one_more(attrs):
    """A window that does not count the token itself."""
    return {"window": attrs["window"] + 1} if attrs["window"] else {}


def restore_last(chip: FakeChip, call: Call, seen: np.ndarray) -> None:
    """The last element keeps what was there before."""
    y = elements(chip, call, "y")
    if y.size:
        y.reshape(-1)[-1] = seen


def last_before(chip: FakeChip, call: Call):
    y = elements(chip, call, "y")
    return np.array(y.reshape(-1)[-1]) if y.size else None


def written_as_int64(chip: FakeChip, call: Call) -> None:
    """Twice as many bytes as the output has, whatever lies behind it."""
    tensor = call.outputs["tokens"]
    tokens = np.array(chip._store.array(tensor)).astype(np.int64)
    data = chip._store.data(tensor.buffer)
    data[tensor.offset : tensor.offset + tokens.nbytes] = tokens.view(np.uint8)


def wrong_from_1024_rows(y: np.ndarray) -> None:
    """A grid that is one block too small."""
    if y.shape[0] >= 1024:
        y[1023:] = 0


def by_way_of_the_host(chip: FakeChip, impl: Implementation) -> Implementation:
    """Computes what it is asked, on the host, without a word."""

    def prepare(call: Call) -> Launch:
        sound = impl.prepare(call)
        y = call.outputs["y"]

        def launch() -> None:
            sound()
            host = np.zeros(y.nbytes, np.uint8)
            chip.memory.copy_out(y, host.data)
            chip.memory.copy_in(y, host.data)

        return launch

    return replace(impl, prepare=prepare)


def jitter() -> object:
    """Sums in another order each time: off by a rounding or two."""
    noise = np.random.default_rng(0)

    def spoil(y: np.ndarray) -> None:
        y *= (1 + noise.choice((0, 2.0**-23), y.shape)).astype(y.dtype)

    return on_output("y", spoil)


def leaning_on_the_batch(y: np.ndarray) -> None:
    """One scale for the whole batch: right for a row alone."""
    if y.shape[0] > 1:
        y *= 1 + 0.05 * (y.shape[0] - 1)


def scribbles(chip: FakeChip, call: Call) -> None:
    """Scratch in memory that belongs to somebody else."""
    own = {id(t.buffer) for t in (*call.inputs.values(), *call.outputs.values())}
    for block in chip._store._blocks.values():
        if id(block.buffer) not in own and block.data.size >= 64:
            block.data[:64] = 0
            return


def short_of_workspace(chip: FakeChip, impl: Implementation) -> Implementation:
    """Declares 64 bytes of scratch and uses 128."""

    def prepare(call: Call) -> Launch:
        sound = impl.prepare(replace(call, workspace=None))
        scratch = call.workspace
        assert scratch is not None

        def use() -> None:
            chip._store.data(scratch.buffer)[scratch.offset : scratch.offset + 128] = 7

        def launch() -> None:
            chip.memory._put(impl.op, use)
            sound()

        return launch

    return replace(impl, prepare=prepare, workspace=lambda call: 64)


def reads_the_host_half(name: str):
    """Takes indices from the host without declaring it."""

    def changed(chip: FakeChip, impl: Implementation) -> Implementation:
        def prepare(call: Call) -> Launch:
            pair = call.inputs[name]
            assert isinstance(pair, IndexPair)
            sound = impl.prepare(call)

            def launch() -> None:
                device = pair.device
                if device.nbytes:
                    chip.memory.copy_in(device, memoryview(bytes(pair.host.cast("B"))))
                sound()

            return launch

        return replace(impl, prepare=prepare)

    return changed


def one_slot_further(chip: FakeChip, call: Call) -> None:
    """The first token's key lands in the next slot too."""
    slots = chip._store.array(call.inputs["slots"].device)
    cache = chip._store.array(call.inputs["cache"].k)
    flat = cache.reshape(-1, *cache.shape[2:])
    if slots.size and slots[0] >= 0:
        flat[(slots[0] + 1) % len(flat)] = flat[slots[0]]


def skipped_are_written(chip: FakeChip, call: Call) -> None:
    """-1 is taken for the last slot, as an index of the language would be."""
    slots = chip._store.array(call.inputs["slots"].device)
    k, cache = elements(chip, call, "k"), chip._store.array(call.inputs["cache"].k)
    flat = cache.reshape(-1, *cache.shape[2:])
    for token in np.flatnonzero(slots < 0):
        flat[-1] = k[token].astype(flat.dtype)


def truncated(chip: FakeChip, call: Call) -> None:
    """Rounds to bfloat16 by cutting bits off."""
    if call.outputs["y"].dtype is not DType.BFLOAT16 or call.inputs["x"].dtype is not DType.FLOAT32:
        return
    x = np.ascontiguousarray(elements(chip, call, "x"))
    high = (x.view(np.uint32) >> 16).astype(np.uint16)
    elements(chip, call, "y")[...] = high.view(NUMPY_DTYPES[DType.BFLOAT16])


def last_of_equals(chip: FakeChip, call: Call) -> None:
    """The highest index wins a tie."""
    x = elements(chip, call, "logits")
    for row, token in enumerate(elements(chip, call, "tokens")):
        equal = np.flatnonzero(x[row] == x[row][token]) if token >= 0 else []
        if len(equal):
            elements(chip, call, "tokens")[row] = equal[-1]


def overflowing(chip: FakeChip, call: Call) -> None:
    """Squares in half precision."""
    x, y = elements(chip, call, "x"), elements(chip, call, "y")
    y[np.abs(x.astype(np.float32)).max(axis=-1, initial=0) > 250] = 0


def wrapped_offset(chip: FakeChip, call: Call) -> None:
    """Offsets in 32 bits: rows that begin past 2**31 elements come from elsewhere."""
    x = call.inputs["x"]
    assert isinstance(x, Tensor)
    for row in range(x.shape[0]):
        if row * x.strides[0] >= 2**31:
            elements(chip, call, "y")[row] = 0


def without_min_p(chip: FakeChip, impl: Implementation) -> Implementation:
    """min_p is read as 0."""

    def prepare(call: Call) -> Launch:
        sound, min_p = impl.prepare(call), call.inputs["min_p"]
        assert isinstance(min_p, Tensor)

        def launch() -> None:
            kept = np.zeros(min_p.nbytes, np.uint8)
            chip.memory.copy_out(min_p, kept.data)
            chip.memory.copy_in(min_p, memoryview(bytes(min_p.nbytes)))
            sound()
            chip.memory.copy_in(min_p, kept.data)

        return launch

    return replace(impl, prepare=prepare)


def rows_of(call: Call) -> int:
    """Sequences of a batch."""
    table = call.inputs["page_table"]
    assert isinstance(table, IndexPair)
    return table.device.shape[0]


def future_of_a_chunk(chip: FakeChip, impl: Implementation) -> Implementation:
    """Decode is right; the second chunk of a prompt sees its own future."""

    def prepare(call: Call) -> Launch:
        tokens, rows = call.inputs["q"].shape[0], rows_of(call)
        late = tokens > rows and call.attrs["causal"]
        attrs = {**call.attrs, "causal": False} if late else call.attrs
        return impl.prepare(replace(call, spec=replace(call.spec, attrs=attrs)))

    return replace(impl, prepare=prepare)


def in_fewer_bits(chip: FakeChip, call: Call) -> None:
    """Accumulates in bfloat16."""
    y = elements(chip, call, "y")
    if y.dtype == np.float32:
        y[...] = y.astype(NUMPY_DTYPES[DType.BFLOAT16]).astype(np.float32)


DEFECTS = {
    "window off by one": (
        {"paged_attention": other_attrs(window_of_one_more)},
        "O3 paged_attention",
    ),
    "softcap dropped": (
        {"paged_attention": other_attrs(lambda a: {"softcap": 0.0})},
        "O3 paged_attention",
    ),
    "softcap of logits dropped": (
        {"lm_head": other_attrs(lambda a: {"softcap": 0.0})},
        "O3 lm_head",
    ),
    "eps dropped": ({"rms_norm": other_attrs(lambda a: {"eps": 0.0})}, "O3 rms_norm"),
    "pairs interleaved": (
        {"rotary_embedding": other_attrs(lambda a: {"neox": False})},
        "O3 rotary_embedding",
    ),
    "bias dropped": ({"linear": without_input("bias")}, "O3 linear"),
    "sees its own future": ({"paged_attention": future_of_a_chunk}, "O1 paged_attention"),
    "last element not written": (
        {"silu_and_mul": around(last_before, restore_last)},
        "O5 silu_and_mul",
    ),
    "int64 written as int32": ({"greedy": afterwards(written_as_int64)}, "O1 greedy"),
    "wrong from 1,024 rows on": ({"rms_norm": on_output("y", wrong_from_1024_rows)}, "O1 rms_norm"),
    "computed on the host": ({"silu_and_mul": by_way_of_the_host}, "O6 silu_and_mul"),
    "not deterministic": ({"linear": jitter()}, "O7 linear"),
    "depends on the batch": ({"rms_norm": on_output("y", leaning_on_the_batch)}, "O7 rms_norm"),
    "undeclared workspace": ({"rms_norm": afterwards(scribbles)}, "O11 rms_norm"),
    "workspace too small": ({"linear": short_of_workspace}, "O11 linear"),
    "host half of an index read": ({"embedding": reads_the_host_half("tokens")}, "O8 embedding"),
    "key in the next slot too": ({"kv_write": afterwards(one_slot_further)}, "O4 cache"),
    "skipped tokens written": ({"kv_write": afterwards(skipped_are_written)}, "O4 cache"),
    "bfloat16 by truncation": ({"cast": afterwards(truncated)}, "O1 cast"),
    "last of equals wins": ({"greedy": afterwards(last_of_equals)}, "O1 greedy"),
    "squares overflow": ({"rms_norm": afterwards(overflowing)}, "O10 rms_norm"),
    "min_p ignored": ({"sample": without_min_p}, "S1 sample"),
    "accumulated in bfloat16": ({"linear": afterwards(in_fewer_bits)}, "O1 linear"),
}
"""Defect -> what is changed, and the check that must catch it."""
