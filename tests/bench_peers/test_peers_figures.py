"""Answers become figures, repeats become medians, and ratios are of one repeat."""

from __future__ import annotations

import pytest
from race.completions import Answer, BatchRun
from race.figures import (
    W1_DECODE,
    W2_FIRST,
    W2_OUTPUT,
    W4_FIRST,
    Results,
    Spread,
    figures_of,
    percentile,
    rises,
    rounded,
)
from race.roofline import Work, shares
from race.targets import TARGETS, verdicts
from race.workloads import Batch, Job


def run_of(*answers: Answer, wall: float = 2.0) -> BatchRun:
    jobs = tuple(Job((1,) * 10, answer.tokens) for answer in answers)
    return BatchRun(Batch("W2", jobs, len(jobs)), answers, wall)


def test_figures_of_a_batch() -> None:
    run = run_of(Answer(0.1, 1.1, 11, True, 4), Answer(0.3, 1.3, 6, True, 6))
    found = figures_of(run)
    assert found["output_rate"] == 17 / 2
    assert found["first_mean_ms"] == pytest.approx(200)
    assert found["token_mean_ms"] == pytest.approx((100 + 200) / 2)
    assert found["decode_rate"] == pytest.approx(1000 / 150)
    assert found["hit_rate"] == 10 / 20
    assert found["counted"] is True


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    found = figures_of(run_of(Answer(0.5, 0.5, 1, True, None)))
    assert "decode_rate" not in found and "hit_rate" not in found


def test_an_answer_that_came_in_one_piece_tells_no_speed_of_decode() -> None:
    assert "decode_rate" not in figures_of(run_of(Answer(0.5, 0.5, 8, True, None)))


def test_hit_rate_needs_every_answer_to_tell() -> None:
    run = run_of(Answer(0.1, 1.1, 11, True, 4), Answer(0.3, 1.3, 6, False, None))
    found = figures_of(run)
    assert "hit_rate" not in found and found["counted"] is False


def test_percentile_lies_between_neighbours() -> None:
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([7], 0.99) == 7
    assert percentile(range(101), 0.99) == 99


def test_spread_tells_median_least_and_most() -> None:
    assert str(Spread.of([3.0, 1.0, 2.0])) == "2 (1 to 3)"
    assert str(Spread.of([1234.5])) == "1,234"
    assert rounded(0.12345) == "0.123"


def test_rises() -> None:
    assert rises([1, 2, 3]) and not rises([1, 3, 3]) and not rises([2, 1])


def batch(engine: str, repeat: int, work: str, **values: float) -> dict[str, object]:
    return {"kind": "batch", "engine": engine, "repeat": repeat, "work": work, **values}


def server(engine: str, width: str, repeat: int = 0) -> dict[str, object]:
    family = engine.rpartition("-")[0]
    line = {"kind": "server", "engine": engine, "family": family, "width": width}
    return line | {"work": "server", "repeat": repeat, "start_s": 1.0}


def test_gain_pairs_the_repeats() -> None:
    """The machine became twice as slow: medians of each alone would hide nothing here, but a
    repeat that only one engine has must not count."""
    lines = [batch("a-bf16", r, "W1", decode_rate=v) for r, v in ((0, 30.0), (1, 15.0), (2, 99.0))]
    lines += [batch("b-bf16", r, "W1", decode_rate=v) for r, v in ((0, 10.0), (1, 5.0))]
    gain = Results(lines).gain(W1_DECODE, "a-bf16", "b-bf16")
    assert gain == Spread(3.0, 3.0, 3.0, 2)


def test_gain_of_a_time_is_the_peer_over_ours() -> None:
    lines = [batch("a", 0, "W4", first_mean_ms=50.0), batch("b", 0, "W4", first_mean_ms=200.0)]
    gain = Results(lines).gain(W4_FIRST, "a", "b")
    assert gain is not None and gain.median == 4
    assert Results(lines).gain(W4_FIRST, "a", "c") is None


def test_flags_are_no_figures() -> None:
    results = Results([batch("a", 0, "W1", counted=True, wall_s=2.0)])
    assert results.spread("a", "W1", "counted") is None
    assert results.spread("a", "W1", "wall_s") == Spread(2.0, 2.0, 2.0, 1)


def test_streams_are_in_order_of_their_number() -> None:
    lines = [batch("a", 0, f"W5-{n}", output_rate=10.0 * n) for n in (16, 2, 1)]
    assert list(Results(lines).streams("a")) == [1, 2, 16]


def judged(*lines: dict[str, object]) -> dict[tuple[str, str | None, bool], object]:
    found = verdicts(Results(lines))
    return {(v.target.figure.title, v.target.ours, v.target.aim): v for v in found}


def test_targets_are_those_of_the_issue() -> None:
    wanted = {(t.figure.work, t.figure.key, t.peer, t.least, t.ours, t.aim) for t in TARGETS}
    assert ("W2", "output_rate", "vllm", 2.5, "bf16", False) in wanted
    assert ("W2", "first_mean_ms", "vllm", 2.0, "bf16", False) in wanted
    assert ("W3", "wall_s", "vllm", 4.0, "8-bit", True) in wanted
    assert ("W4", "first_mean_ms", "vllm", 2.2, "bf16", False) in wanted
    assert ("W5-64", "output_rate", "vllm", 2.8, "bf16", False) in wanted
    assert sum(t.peer == "llama.cpp" and t.least == 1.3 for t in TARGETS) == 4


def test_verdicts_compare_the_width_asked_for() -> None:
    lines = [server("anychip-bf16", "bf16"), server("anychip-q8_0", "8-bit")]
    lines += [server("llama.cpp-bf16", "bf16"), server("llama.cpp-q8_0", "8-bit")]
    rates = {"anychip-bf16": 50, "anychip-q8_0": 90, "llama.cpp-bf16": 40, "llama.cpp-q8_0": 60}
    lines += [batch(e, 0, "W1", decode_rate=float(v)) for e, v in rates.items()]
    found = judged(*lines)
    assert found["W1 decode, tok/s", "bf16", False].gain.median == 1.25
    assert found["W1 decode, tok/s", "bf16", False].says == "MISSED"
    assert found["W1 decode, tok/s", "8-bit", False].says == "reached"
    best = found["W1 decode, tok/s", None, False]
    assert (best.ours, best.theirs) == ("anychip-q8_0", "llama.cpp-q8_0")
    assert found["W1 decode, tok/s", "4-bit", False].says == "not measured"


def test_an_aim_is_not_missed_but_fallen_short_of() -> None:
    lines = [server("anychip-q8_0", "8-bit"), server("vllm-bf16", "bf16")]
    lines += [batch("anychip-q8_0", 0, "W2", output_rate=300.0)]
    lines += [batch("vllm-bf16", 0, "W2", output_rate=100.0)]
    found = judged(*lines)
    assert found[W2_OUTPUT.title, "8-bit", True].says == "short of the aim"
    assert found[W2_FIRST.title, "bf16", False].says == "not measured"


def test_the_best_engine_of_a_time_is_the_fastest() -> None:
    lines = [server("anychip-bf16", "bf16"), server("anychip-int8", "bf16")]
    lines += [server("vllm-bf16", "bf16")]
    times = {"anychip-bf16": 100, "anychip-int8": 50, "vllm-bf16": 150}
    lines += [batch(e, 0, "W4", first_mean_ms=float(v)) for e, v in times.items()]
    verdict = judged(*lines)[W4_FIRST.title, "bf16", False]
    assert (verdict.ours, verdict.gain.median) == ("anychip-int8", 3.0)


def test_work_of_a_prompt_counts_causal_pairs_once() -> None:
    work = Work(weight_bytes=100, cache_bytes=3, linear=10, head=7, attention=2)
    assert work.decode_bytes(20) == 160
    assert work.prefill_flops(3) == 3 * 10 + 7 + (1 + 2 + 3) * 2


def test_shares_divide_what_was_reached_by_what_was_measured() -> None:
    model = {"kind": "model", "engine": "a", "step_bytes": 2 * 10**9, "long_flops": 3 * 10**9}
    machine = {"kind": "machine", "repeat": 0, "read_gb_s": {"2000000000": 40.0}}
    machine["product_gflops"] = {"float32": 1.0, "bfloat16": 12.0}
    lines = [model, machine, batch("a", 0, "W1", decode_rate=10.0)]
    lines += [batch("a", 0, "W4", first_mean_ms=1000.0)]
    decode, prefill = shares(Results(lines))
    assert (decode.reached, decode.limit, decode.unit) == (20.0, 40.0, "GB/s")
    assert (prefill.reached, prefill.limit, prefill.unit) == (3.0, 12.0, "GFLOP/s")


def test_shares_are_left_out_where_a_limit_is_not_known() -> None:
    model = {"kind": "model", "engine": "a", "step_bytes": 8, "long_flops": 3}
    machine = {"kind": "machine", "repeat": 0, "read_gb_s": {}, "product_gflops": {"float32": 1.0}}
    lines = [model, machine, batch("a", 0, "W4", first_mean_ms=1.0)]
    assert list(shares(Results(lines))) == []
