"""docs/router.md tells of every flag that only a router has, and of every path passed on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anychip.config import RouterConfig, ServeConfig
from anychip.flags import settings_of
from anychip.router.asking import ROUTED
from anychip.router.policies import POLICIES
from anychip.router.rules import parse_rule
from anychip.router.telemetry import STATES

PAGE = (Path(__file__).parents[2] / "docs" / "router.md").read_text()
OF_SERVERS = {setting.field for setting in settings_of(ServeConfig)}
FLAGS = [s.flag.names[0] for s in settings_of(RouterConfig) if s.field not in OF_SERVERS]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_of_the_router_is_on_the_page(flag):
    assert f"`{flag}" in PAGE or f" {flag} " in PAGE


@pytest.mark.parametrize("name", [*POLICIES, *STATES, *ROUTED])
def test_policies_states_and_paths_are_on_the_page(name):
    assert f"`{name}`" in PAGE


def test_the_rules_of_the_page_are_rules():
    rules = re.findall(r"--rule '([^']+)'", PAGE)
    assert len(rules) >= 2
    for rule in rules:
        if "CONDITION" not in rule:
            assert parse_rule(rule).targets
