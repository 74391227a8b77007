"""The catalogue keeps Prometheus' rules, and docs/metrics.md is what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from anychip.figures import Buckets
from anychip.http.families import Families
from anychip.router.metrics.catalogue import ROUTER
from anychip.server.metrics.aliases import ALIASES
from anychip.server.metrics.catalogue import CATALOGUE, TABLES
from anychip.server.metrics.page import page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
UNITS = {"1", "seconds", "bytes", "ratio", "celsius", "watts"}


def test_the_page_is_what_the_catalogue_says():
    catalogued, _, _ = PAGE.read_text().partition("\n## What each chip tells\n")
    found = page({"Router": ROUTER})
    assert catalogued == found, "write it again: see bench/chip_figures.py"


def test_names_are_unique_and_tell_kind_and_unit():
    assert len(CATALOGUE) == sum(len(table) for table in TABLES.values())
    for metric in CATALOGUE.values():
        assert re.fullmatch(r"anychip(_[a-z0-9]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.unit in UNITS
        plain = metric.name.removesuffix("_total")
        assert metric.unit == "1" or plain.endswith("_" + metric.unit), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(metric.buckets)
        assert metric.help.endswith((".", "...")), metric.name


def test_aliases_have_a_source_and_no_name_of_ours():
    for engine, aliases in ALIASES.items():
        names = [alias.name for alias in aliases]
        assert len(set(names)) == len(names) and all(n.startswith(f"{engine}:") for n in names)
        for alias in aliases:
            source = CATALOGUE[alias.source]
            assert {*alias.only, *alias.labels} <= set(source.labels)
            if source.kind == "counter":
                assert alias.name.endswith("_total")


class Everything:
    """One sample of each family."""

    def collect(self):
        families = Families(CATALOGUE, {"model_name": "m", "chip": "c"})
        for metric in CATALOGUE.values():
            labels = tuple("x" for _ in metric.labels)
            if metric.kind == "histogram":
                yield families.histogram(metric.name, {labels: Buckets()})
            else:
                yield families.many(metric.name, {labels: 1.0})


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_promtool_has_nothing_to_say_about_names():
    registry = CollectorRegistry()
    registry.register(Everything())
    found = subprocess.run(
        ["promtool", "check", "metrics"],
        input=generate_latest(registry),
        capture_output=True,
        timeout=60,
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")


def test_a_histogram_counts_up_to_infinity():
    buckets, name = Buckets(), "anychip_grammar_mask_seconds"
    bounds = CATALOGUE[name].buckets
    for value in (0.0, bounds[0], bounds[0] * 1.01, 1e9):
        buckets.observe(value, bounds)
    (family,) = [Families(CATALOGUE).histogram(name, {(): buckets})]
    buckets_of = (sample for sample in family.samples if "le" in sample.labels)
    found = {sample.labels["le"]: sample.value for sample in buckets_of}
    assert found[str(bounds[0])] == 2 and found[str(bounds[1])] == 3 and found["+Inf"] == 4
