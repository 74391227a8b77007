"""Limits, shares, medians and tables, from numbers that are made up."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from costs.limits import Limit, Rates, Step, decode_step, measured, prefill_step, read_size
from costs.report import report, table
from costs.results import FILE, Measured, Point, Results, names_of, work_step, write
from costs.steps import Cost, Operator, Times, cache_needed, medians, positions_needed
from race import machine
from race.roofline import Work

WORK = Work(weight_bytes=1_000_000, cache_bytes=100, linear=400_000, head=100_000, attention=50)
FACTS = {
    "processor": "a processor",
    "cores": 2,
    "memory_gib": 8,
    "system": "a system",
    "python": "3.11",
    "load_before": 0.25,
    "read_gb_s": {"1048576": 10.0, "2097152": 5.0},
    "product_gflops": {"float32": 1.0, "bfloat16": 2.0},
}


def cost(kind="decode", batch=2, context=64, **changed) -> Cost:
    operators = (Operator("big", 3, 600e-6), Operator("small", 1, 200e-6))
    times = {"plan": 50e-6, "run": 900e-6, "commit": 50e-6, "native": 800e-6}
    times |= {"step": 1e-3, "python": 200e-6}
    positions = batch * context
    return Cost(kind, batch, context, positions, **(times | changed), operators=operators)


def test_a_decode_reads_the_weights_once_and_the_cache_of_each_sequence() -> None:
    step = decode_step(WORK, batch=4, positions=400)
    assert step.bytes == 1_000_000 + 400 * 100
    assert step.flops == 4 * 500_000 + 400 * 50
    assert decode_step(WORK, 4, 400, element_bytes=4).bytes == 1_000_000 + 400 * 200


def test_a_prefill_attends_to_what_is_before_each_position() -> None:
    step = prefill_step(WORK, 10)
    assert step.bytes == 1_000_000 + 10 * 100
    assert step.flops == 10 * 400_000 + 100_000 + 55 * 50
    assert work_step(WORK, cost("prefill", 1, 10)) == step
    assert work_step(WORK, cost("decode", 4, 100)) == decode_step(WORK, 4, 400)


def test_int8_by_int8_counts_half_in_the_layers_alone() -> None:
    int8 = replace(WORK, int8=True)
    assert decode_step(int8, 4, 400).flops == 4 * (200_000 + 100_000) + 400 * 50
    assert prefill_step(int8, 10).flops == 10 * 200_000 + 100_000 + 55 * 50
    assert decode_step(int8, 4, 400).bytes == decode_step(WORK, 4, 400).bytes


def test_the_limit_is_the_slower_of_reads_and_products() -> None:
    rates = Rates(FACTS)
    assert rates.dtype == "bfloat16" and rates.product == 2e9
    reads = rates.limit(Step(1_000_000, 20_000))
    assert reads.read_s == pytest.approx(1e-4) and reads.product_s == pytest.approx(1e-5)
    assert reads.seconds == reads.read_s and reads.bound_by == "reads"
    products = rates.limit(Step(1_000_000, 2_000_000))
    assert products.seconds == pytest.approx(1e-3) and products.bound_by == "products"
    assert products.reached(4e-3) == pytest.approx(0.25)


def test_without_bfloat16_the_rate_is_that_of_float32() -> None:
    rates = Rates({**FACTS, "product_gflops": {"float32": 1.0}})
    assert rates.dtype == "float32" and rates.product == 1e9


def test_the_rate_of_the_nearest_size_counts() -> None:
    rates = Rates(FACTS)
    assert [rates.read(n) for n in (1, 1_000_000, 3_000_000)] == [10e9, 10e9, 5e9]


def test_sizes_of_reads_are_two_an_octave_within_bounds() -> None:
    assert read_size(1 << 20) == read_size((1 << 20) + 1000) == 1 << 20
    assert read_size(int(1.4 * (1 << 20))) == int(2**20.5)
    assert read_size(1) == 1 << 16 and read_size(1 << 40) == 1 << 31


def test_rates_that_are_known_are_not_measured_again() -> None:
    known = Rates(FACTS)
    assert measured([Step(1 << 20, 1)], known) is known


def test_products_are_of_numbers_that_differ(monkeypatch) -> None:
    square = machine.random_square(64)
    assert square.shape == (64, 64) and square.dtype == np.float32
    assert square.std() == pytest.approx(1, abs=0.1)
    assert np.array_equal(square, machine.random_square(64))
    monkeypatch.setattr(machine, "SIDE", 64)
    monkeypatch.setattr(machine, "LEAST_SIDE", 64)
    monkeypatch.setattr(machine, "LEAST_SECONDS", 0.0)
    rates = machine.product_rates()
    assert "float32" in rates and all(rate > 0 and side == 64 for rate, side in rates.values())


def test_a_slow_product_is_measured_on_smaller_squares(monkeypatch) -> None:
    spent = {256: 0.01, 512: 0.08, 1024: 0.64}
    asked: list[int] = []
    monkeypatch.setattr(machine, "best_seconds", lambda call: spent[asked[-1]])
    rate, side = machine.product_rate(lambda n: asked.append(n) or np.zeros((1, 1)))
    assert asked == [256, 512, 1024]
    assert side == 1024 and rate == pytest.approx(2 * 1024**3 / 1e9 / 0.64)


def test_medians_are_of_each_part_by_itself() -> None:
    found = [Times(1, 10, 9, 8, 1), Times(2, 20, 1, 16, 2), Times(3, 30, 2, 24, 3)]
    wanted = {"plan": 2, "run": 20, "commit": 2, "native": 16, "step": 23, "python": 11}
    assert medians(found) == wanted
    assert cost().python_share == pytest.approx(0.2)


def test_room_is_left_for_the_steps_that_are_measured() -> None:
    assert positions_needed(100, 4, 12) >= 100 + 4 + 13
    assert cache_needed(100, 4, 12) >= 4 * positions_needed(100, 4, 12)


def test_a_table_is_aligned_with_numbers_to_the_right() -> None:
    lines = table(["name", "ms"], [["one", "1.5"], ["another", "1,200"], ["none", "–"]]).split("\n")
    assert lines == [
        "| name    |    ms |",
        "| ------- | ----: |",
        "| one     |   1.5 |",
        "| another | 1,200 |",
        "| none    |     – |",
    ]
    assert table(["name"], []) == ""


def results_of(*names: str) -> Results:
    limit = Limit(read_s=0.4e-3, product_s=0.1e-3)
    found = Results("today", {"backend": "a chip"}, Rates(FACTS))
    for name in names:
        points = [Point(cost(), limit), Point(cost("prefill", 1, 128), None)]
        found.models.append(Measured(name, WORK, "bfloat16", "float16", {}, points, ["too large"]))
    return found


def cells(text: str, *first: str) -> list[str]:
    """The cells of the first line of a table that begins with these."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]
    return next(line for line in lines if line[: len(first)] == list(first))


def test_the_report_tells_parts_limits_and_operators() -> None:
    text = report(results_of("one"))
    parts = ["1.000", "50", "0.900", "50", "0.800", "200", "20.0"]
    limit = ["0.400", "reads", "40"]
    assert cells(text, "2", "64") == ["2", "64", "64", *parts, "2,000", *limit]
    assert cells(text, "128") == ["128", *parts, "128,000", "–", "–", "–"]
    assert cells(text, "big") == ["big", "3", "600", "75.0"]
    assert "not measured: too large" in text and "side by side" not in text


def test_several_models_are_set_side_by_side() -> None:
    text = report(results_of("one", "two"))
    assert cells(text, "decode", "2", "64")[3:] == ["1.000 (40%)", "1.000 (40%)"]
    assert cells(text, "prefill", "1", "128")[3:] == ["1.000", "1.000"]


def test_the_file_keeps_every_number(tmp_path) -> None:
    write(results_of("one"), tmp_path)
    kept = json.loads((tmp_path / FILE).read_text())
    decode, prefill = kept["models"][0]["steps"]
    assert decode["step"] == 1e-3 and decode["python_share"] == pytest.approx(0.2)
    assert decode["reached"] == pytest.approx(0.4) and decode["limit"]["bound_by"] == "reads"
    assert decode["operators"][0] == {"id": "big", "calls": 3, "seconds": 600e-6}
    assert "limit" not in prefill and kept["machine"]["cores"] == 2


def test_models_of_the_same_name_are_told_apart(tmp_path) -> None:
    one, two, three = tmp_path / "a" / "m", tmp_path / "b" / "m", tmp_path / "n"
    assert names_of([one, two, three]) == [str(one), str(two), "n"]
