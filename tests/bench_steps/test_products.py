"""The products' bench on one small product, and how it counts."""

from __future__ import annotations

import re
import sys

import products
import pytest
from costs.peaks import Peaks
from costs.product import COLD, Shape, Turns, copies_of


def test_a_line_has_a_rate_and_a_ratio_for_each_number_of_rows(monkeypatch, capsys):
    words = ["--formats", "float32", "--models", "SmolLM2-135M", "--parts", "o", "--threads", "1"]
    words += ["--rows", "1", "9", "--turns", "1", "--milliseconds", "1"]
    monkeypatch.setattr(sys, "argv", ["products.py", *words])
    monkeypatch.setattr(products, "measured_peaks", lambda: Peaks({"float32": 1e9}))
    assert products.main() == 0
    line = capsys.readouterr().out.splitlines()[-1]
    cells = r"\| \d+ \(\d+\.\d\d\) \| \d+ \(\d+\.\d\d\) \| \d+ \| 0% \|"
    assert re.fullmatch(r"\| SmolLM2-135M \| o \| 576 × 576 \| 1 " + cells, line), line


def test_peaks_are_those_of_the_instructions_that_a_format_takes():
    peaks = Peaks({"float32": 1.0, "bfloat16": 2.0, "int8": 4.0})
    formats = ("float32", "bfloat16", "q8_0", "q4_1", "w8a8")
    assert [peaks.of(format) for format in formats] == [1.0, 2.0, 2.0, 2.0, 4.0]
    assert Peaks({}).of("w8a8") == 0.0 and "lacks" in Peaks({}).told()


def test_copies_fill_more_than_a_cache():
    assert Shape(3, 5).flops == 30
    assert copies_of(COLD) == 2 and copies_of(COLD // 3) >= 3


def test_calls_take_turns_and_the_first_is_not_counted():
    seen: list[str] = []
    turns = Turns([lambda: seen.append("a"), lambda: seen.append("b")])
    assert turns.seconds(0.0) > 0 and turns.seconds(0.0) > 0
    assert seen == ["a", "b", "a", "b"]


def test_a_format_that_is_none_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["products.py", "--formats", "q3"])
    with pytest.raises(SystemExit):
        products.main()
    assert "invalid choice: 'q3'" in capsys.readouterr().err
