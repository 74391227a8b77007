"""AMX without AMX: emulated tiles round as the manual says, fault as the unit would, and count."""

from __future__ import annotations

import logging
import subprocess

import ml_dtypes
import numpy as np
import pytest
from cpu_calls import BF16, LEVELS, CpuCalls, normal, same_bits

from anychip.chips.cpu import build_isa
from anychip.chips.cpu.build_isa import EMULATED, instruction_sets, isas_of, runnable_sets
from anychip.chips.cpu.build_tiles import TileCounts, tile_counts
from anychip.contract.errors import ContractError
from anychip.contract.weights import WeightUse

HEAD = frozenset({WeightUse.LM_HEAD})
needs_bf16 = pytest.mark.skipif(
    EMULATED not in runnable_sets(), reason="emulated tiles need a processor with avx512_bf16"
)


@pytest.fixture(scope="module")
def tiles(chips):
    """One thread, so that its counts are those of the whole call."""
    return chips(isa=EMULATED, threads=1)


def counted(calls, op, attrs=None, **inputs):
    """(outputs, counts of the call)."""
    library = calls.chip.capabilities().facts["kernels"]
    before = tile_counts(library)
    y = calls.call(op, attrs, **inputs)
    return y, tile_counts(library) - before


def float32_of(x):
    return np.asarray(x, np.float32).astype(np.float64)


def as_the_manual_says(x, w):
    """x [m, k] times w [n, k], both bfloat16: of each 32 elements the even and the odd ones are
    chains of fused multiply-adds; both are added, then to the sum. Tiny numbers are zeros.

    A chain's step is computed in float64: exact but for sums that span more than 53 bits.
    """

    def step(product, total):
        sums = (product + total).astype(np.float32)
        return np.where(np.abs(sums) < np.finfo(np.float32).tiny, 0, sums).astype(np.float64)

    x, w = float32_of(x), float32_of(w)
    total = np.zeros((len(x), len(w)))
    for first in range(0, x.shape[1], 32):
        even, odd = np.zeros_like(total), np.zeros_like(total)
        for k in range(first, first + 32, 2):
            even = step(x[:, k, None] * w[None, :, k], even)
            odd = step(x[:, k + 1, None] * w[None, :, k + 1], odd)
        total = step(step(even, odd), total)
    return total.astype(np.float32)


@needs_bf16
@pytest.mark.parametrize("rows", [3, 16, 17, 40])
def test_a_product_rounds_as_the_manual_says(tiles, rows):
    x, w = normal(1, rows, 96, dtype=BF16), normal(2, 40, 96, dtype=BF16)
    y, _ = counted(tiles, "lm_head", x=x, weight=tiles.weight("bfloat16", w.shape, w, HEAD))
    assert same_bits(y, as_the_manual_says(x, w))
    one_chain = np.zeros((rows, 40), np.float32)
    for k in range(96):
        one_chain = (one_chain + float32_of(x)[:, k, None] * float32_of(w)[None, :, k]).astype(
            np.float32
        )
    assert not np.array_equal(y, one_chain)


@needs_bf16
def test_tiny_numbers_are_zeros(tiles):
    x, w = np.zeros((2, 32), BF16), np.ones((32, 32), BF16)
    x[0, 0], x[1, 0] = ml_dtypes.bfloat16(2.0**-130), ml_dtypes.bfloat16(2.0**-126)
    w[1:] = 0.25
    y, _ = counted(tiles, "lm_head", x=x, weight=tiles.weight("bfloat16", w.shape, w, HEAD))
    assert not y[0].any() and y[1, 0] == np.float32(2.0**-126) and not y[1, 1:].any()


@needs_bf16
@pytest.mark.parametrize("rows", [16, 32, 64])
def test_a_product_takes_so_many_tiles(tiles, rows):
    """32 rows and 32 columns meet in four products a step of K, which take four loads."""
    n, k = 64, 576
    x, w = normal(3, rows, k, dtype=BF16), normal(4, n, k, dtype=BF16)
    _, counts = counted(tiles, "linear", x=x, weight=tiles.weight("bfloat16", w.shape, w))
    squares, steps = -(-rows // 32) * n // 32, k // 32
    whole = rows >= 32
    assert counts.products == squares * steps * (4 if whole else 2)
    assert counts.loads + counts.passing_loads == squares * steps * (4 if whole else 3)
    assert counts.zeros == counts.stores == squares * (4 if whole else 2)
    assert counts.configurations == 2  # of a task, which has one panel here


@needs_bf16
@pytest.mark.parametrize("dim", [64, 96, 128])
def test_attention_reads_queries_and_weights_once_a_block(tiles, dim):
    """16 query rows of a KV head meet 64 keys; l and a row of ones are a tile each."""
    k, v = (normal(i, 5, 16, 1, dim, dtype=BF16) for i in (1, 2))
    _, counts = counted(
        tiles,
        "paged_attention",
        {"causal": True, "window": 0, "softcap": 0.0, "scale": 0.2},
        q=normal(3, 1, 16, dim, dtype=BF16),
        cache=tiles.cache(k, v),
        page_table=np.arange(1, 5, dtype=np.int32)[None],
        cu_q=np.array([0, 1], np.int32),
        kv_lens=np.array([64], np.int32),
        positions=np.array([63]),
        token_rows=np.array([0]),
    )
    deep = dim // 32
    assert counts.products == 4 * deep + 2 * 2 * deep + 2
    queries = 2 + 2 * (deep - 2)  # beyond 64 elements once for each half of the keys
    assert counts.loads == 1 + queries + 4 * deep + 2 + 2 * deep + 4 * deep + 1
    assert counts.stores == 4 + 2 * deep + 1 and counts.configurations == 1


def int8_weight(n, k, seed):
    """Bytes of a w8a8 weight [n, k]."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.01, 0.1, (n, 1)).astype(np.float32)
    q = rng.integers(-128, 128, (n, k)).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), q.view(np.uint8)], axis=1).reshape(-1)


@needs_bf16
def test_bytes_take_half_as_many_tiles(tiles):
    n, k = 64, 576
    x, raw = normal(3, 64, k, dtype=BF16), int8_weight(n, k, 5)
    _, counts = counted(tiles, "linear", x=x, weight=tiles.weight("w8a8", (n, k), raw))
    assert counts.products == 2 * 2 * (k // 64) * 4
    assert counts.loads + counts.passing_loads == counts.products
    assert counts.stores == counts.zeros == 2 * 2 * 4


@needs_bf16
@pytest.mark.parametrize("k", [576, 1500])
def test_int8_has_the_bits_of_dot_products(chips, tiles, k):
    other = chips(isa="avx512bf16")
    gate_up, down = int8_weight(192, k, 6), int8_weight(k, 96, 7)
    x, norm = normal(8, 40, k, dtype=BF16), normal(9, k)
    found = []
    for calls in (tiles, other):
        weight = calls.weight("w8a8", (192, k), gate_up)
        y = calls.call("linear", x=x, weight=weight)
        given = {"x": x, "residual": None, "norm": norm, "gate_up": weight}
        given["down"] = calls.weight("w8a8", (k, 96), down)
        block, _ = calls.call("mlp_block", {"eps": 1e-5}, **given)
        found.append((weight.spec.nbytes, y, block))
    (bytes_of, y, block), (others, wanted, wanted_block) = found
    assert bytes_of == others and same_bits(y, wanted) and same_bits(block, wanted_block)


@needs_bf16
def test_threads_count_for_themselves(tiles):
    counts = tile_counts(tiles.chip.capabilities().facts["kernels"])
    assert counts - counts == TileCounts(0, 0, 0, 0, 0, 0)


FAULTS = {
    "a tile is used that is not configured": "_tile_zero(1);",
    "a shape that no tile has": "shape.rows[1] = 17; _tile_loadconfig(&shape);",
    "no known palette": "shape.palette = 2; _tile_loadconfig(&shape);",
    "shapes that do not meet": "shape.rows[5] = 8; _tile_loadconfig(&shape);"
    " _tile_dpbf16ps(0, 4, 5);",
    "a product of a tile with itself": "_tile_loadconfig(&shape); _tile_dpbssd(0, 4, 4);",
}


@needs_bf16
def test_what_the_unit_would_fault_on_ends_the_process(tmp_path):
    from anychip.chips.cpu.build import CHIP, KERNELS
    from anychip.contract.compile import find_compiler

    cases = "\n".join(
        f"    case {i}: {{ {lines} break; }}" for i, lines in enumerate(FAULTS.values())
    )
    source = tmp_path / "faults.cpp"
    source.write_text(
        '#include <cstdlib>\n#include "amx.h"\nusing namespace anychip;\n'
        "int main(int, char** given) {\n  TileShape shape(16, 16);\n"
        f"  switch (std::atoi(given[1])) {{\n{cases}\n  }}\n  return 0;\n}}\n"
    )
    program = tmp_path / "faults"
    flags = [f for f in build_isa.compiler_flags(EMULATED) if f != "-O3"]
    line = [find_compiler(CHIP).path, *flags, f"-I{KERNELS}", str(source), "-o", str(program)]
    subprocess.run(line, check=True, timeout=300)
    for i, text in enumerate(FAULTS):
        done = subprocess.run([program, str(i)], check=False, capture_output=True, text=True)
        assert done.returncode < 0 and text in done.stderr, (text, done.stderr)
    assert subprocess.run([program, str(len(FAULTS))], check=False).returncode == 0


def test_emulated_tiles_are_never_chosen_and_in_no_wheel(monkeypatch):
    assert EMULATED not in isas_of("x86_64") and EMULATED not in instruction_sets()
    monkeypatch.setattr(build_isa, "processor_flags", lambda: frozenset({"avx2", "fma", "f16c"}))
    assert EMULATED not in runnable_sets()
    with pytest.raises(ContractError, match=f"isa={EMULATED}: this processor runs"):
        CpuCalls({"isa": EMULATED})


@needs_bf16
def test_emulated_tiles_are_told(caplog):
    with caplog.at_level(logging.WARNING, "anychip.chip"):
        CpuCalls({"isa": EMULATED, "threads": 1}).chip.close()
    assert "emulates its tiles" in caplog.text


@pytest.mark.skipif("amx" not in LEVELS, reason="needs a processor with AMX")
@pytest.mark.parametrize("rows", [5, 33, 200])
def test_real_tiles_give_the_same_bits(chips, tiles, rows):
    x, w = normal(5, rows, 1600, dtype=BF16), normal(6, 96, 1600, dtype=BF16)
    real, emulated = (
        c.call("linear", x=x, weight=c.weight("bfloat16", w.shape, w))
        for c in (chips(isa="amx", threads=1), tiles)
    )
    assert same_bits(real, emulated)


@needs_bf16
def test_a_model_says_the_same_over_tiles(tmp_path):
    """Its heads are as wide as tiles take; greedy answers differ in ties alone."""
    import tiny_models
    from answers.equality import Oracle, assert_same, config, greedy, tiny_prompts
    from anychip.engine.offline import OfflineEngine

    folder = tiny_models.make_hf_folder(tmp_path, head_dim=32)
    oracle = Oracle(tiny_models.make_hf_model(head_dim=32))
    found = []
    for isa in ("avx512bf16", EMULATED):
        asked = config(folder, dtype="bfloat16", chip_option={"isa": isa, "threads": 1})
        with OfflineEngine(asked) as offline:
            answers = offline.generate(tiny_prompts(), greedy(24))
            found.append([answer.token_ids for answer in answers])
            if isa == EMULATED:
                assert "emulated" in offline.engine.runner._chip.capabilities().facts["isa"]
                for prompt, wanted, got in zip(tiny_prompts(), *found, strict=True):
                    assert_same(offline, oracle, prompt, got, wanted)
