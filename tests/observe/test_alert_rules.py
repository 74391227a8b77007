"""Alerts: valid, tested to fire and to be silent, and each with a place to read on."""

from __future__ import annotations

import re

import pytest
import yaml
from dashboard_files import DEPLOY, metrics_of
from prometheus_program import needs_prometheus, promtool

from anychip.router.metrics.catalogue import CATALOGUE as OF_ROUTERS
from anychip.server.metrics.catalogue import CATALOGUE as OF_SERVERS

FOLDER = DEPLOY / "prometheus"
PAGE = DEPLOY.parent / "docs" / "observing.md"
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


@needs_prometheus
@pytest.mark.parametrize(
    "words",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids="-".join,
)
def test_promtool_finds_nothing_wrong(words):
    ended = promtool(*words[:2], FOLDER / words[2])
    assert ended.returncode == 0 and "FAILED" not in ended.stdout, ended.stdout + ended.stderr


def test_every_alert_is_tested_to_fire_and_to_be_silent():
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    fired, silent = {}, {}
    for test in tests:
        for asked in test["promql_expr_test"]:
            fires = {
                name
                for s in asked["exp_samples"]
                for name in re.findall(r"AnyChip\w+", s["labels"])
            }
            (fired if fires else silent).setdefault(test["name"], set()).update(fires)
    assert {name: {name} for name in ALERTS} == fired
    assert set(ALERTS) <= set(silent)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_known_metrics(rule):
    assert metrics_of(rule["expr"]) <= {*OF_SERVERS, *OF_ROUTERS}
    recorded = set(re.findall(r"anychip:[\w:]+", rule["expr"]))
    assert recorded <= {rule["record"] for rule in RULES if "record" in rule}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_is_and_where_to_read_on(name):
    rule = ALERTS[name]
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == "docs/observing.md"
    section = _sections()[anchor]
    assert f"`{name}`" in section, f"{anchor} does not tell of {name}"
    assert "**Next:**" in section, f"{anchor} names no next command"


def _sections() -> dict[str, str]:
    """The page's text under each heading, by the heading's anchor."""
    parts = re.split(r"^#+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return {_anchor(title): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
