"""A real Prometheus scrapes servers under load; every expression of every dashboard has data."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dashboard_files import DEPLOY, SERVERS, expressions
from prometheus_program import needs_prometheus, promtool

pytestmark = needs_prometheus
DRAW = DEPLOY.parent / "bench" / "draw_dashboard.py"
EXPRESSIONS = [e for e in expressions() if e.dashboard in SERVERS]
FAKE_DOES_NOT_TELL = {
    "anychip_device_utilization_ratio": "a device in software is never busy",
    "anychip_device_temperature_celsius": "nor warm",
    "anychip_device_power_watts": "nor does it draw power",
    "anychip_device_pool_used_bytes": "it has no pool",
    "anychip_device_pool_asked_bytes": "it has no pool",
    "anychip_device_pool_cached_bytes": "it has no pool",
    "anychip_device_pool_fragmentation_ratio": "it has no pool",
}
"""What only the simulated card proves."""


def test_promtool_has_nothing_to_say_of_our_names(watched):
    for server in (watched.fake, watched.kunlun):
        said = promtool("check", "metrics", text=server.metrics())
        assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_prometheus_scrapes_every_server(watched):
    ask = lambda: watched.prometheus.values('up{job="anychip"}')  # noqa: E731
    watched.prometheus.wait_for(lambda: ask() == [1.0, 1.0], "both servers up")


def test_rules_can_be_evaluated_over_several_servers(watched):
    rules = watched.prometheus.rules
    watched.prometheus.wait_for(lambda: all(r["health"] != "unknown" for r in rules()), "rules")
    assert [(rule["name"], rule["lastError"]) for rule in rules() if rule["health"] != "ok"] == []


def test_the_error_of_a_chip_raises_its_alert(watched):
    def firing() -> list[dict]:
        alerts = {rule["name"]: rule.get("alerts") for rule in watched.prometheus.rules()}
        return alerts["AnyChipChipErrors"]

    watched.prometheus.wait_for(firing, "the alert of the error that was provoked")
    (alert,) = firing()
    assert alert["state"] == "firing" and alert["labels"]["layer"] == "memory"
    told = alert["annotations"]
    assert told["summary"] == f"Chip fake of {watched.fake.target}: errors in its layer memory"
    assert told["description"] == "1 of kind out of memory in five minutes."


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_has_data(watched, expression):
    """Numbers, of the chip that is chosen and of no other."""
    told_by_kunlun_alone = any(name in FAKE_DOES_NOT_TELL for name, _ in expression.selectors())
    chip = "kunlun" if told_by_kunlun_alone else "fake"
    asked = expression.promql(chip=chip)
    watched.prometheus.wait_for(lambda: watched.prometheus.values(asked), asked)
    chips = {labels.get("chip", chip) for labels, _ in watched.prometheus.query(asked)}
    assert chips == {chip}


@pytest.mark.parametrize("expression", [e for e in EXPRESSIONS if e.dashboard == "chips"], ids=str)
def test_chips_are_side_by_side(watched, expression):
    alone = any(name in FAKE_DOES_NOT_TELL for name, _ in expression.selectors())
    wanted = {"kunlun"} if alone else {"fake", "kunlun"}
    asked = expression.promql()

    def chips() -> set[str]:
        return {
            labels["chip"] for labels, value in watched.prometheus.query(asked) if value == value
        }

    watched.prometheus.wait_for(lambda: chips() == wanted, f"{wanted}: {asked}")


def test_the_fake_chip_does_not_tell_what_it_is_excused_for(watched):
    page = watched.fake.metrics()
    assert not [name for name in FAKE_DOES_NOT_TELL if f"\n{name}{{" in page]


def test_a_dashboard_is_drawn_without_grafana(watched, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "chips.png"
    words = [DRAW, DEPLOY / "grafana" / "chips.json", "--out", picture, "--minutes", "1"]
    words += ["--prometheus", watched.prometheus.url, "--panel", "Throughput"]
    said = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert said.returncode == 0 and "drew 1 panels" in said.stdout, said.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
