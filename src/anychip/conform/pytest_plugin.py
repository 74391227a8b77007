"""The kit in a vendor's pytest run: the fixture `conformance_check`, one test item a check.

pytest loads this file wherever anychip is installed, so it imports nothing of ours until a test
asks for the fixture; `pytest_checks.py` does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FIXTURE = "conformance_check"
CHECKS_PLUGIN = "anychip.conform.pytest_checks"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each setting is an ini key, and a flag that wins over it."""
    group = parser.getgroup("anychip", "conformance of a chip (anychip)")
    group.addoption("--anychip-backend", metavar="CHIP", help="chip that the kit proves")
    group.addoption("--anychip-device", metavar="N", help="device of the chip [0]")
    group.addoption(
        "--anychip-option", action="append", metavar="NAME=VALUE", help="chip option, repeatable"
    )
    group.addoption(
        "--anychip-level", action="append", metavar="LEVEL", help="level to run, repeatable [all]"
    )
    parser.addini("anychip_backend", "chip that the kit proves", default="")
    parser.addini("anychip_device", "device of the chip", default="0")
    parser.addini("anychip_options", "options of the chip: NAME=VALUE ...", type="args", default=[])
    parser.addini("anychip_levels", "levels that are run [all]", type="args", default=[])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item for each check, where a test asks for the fixture."""
    if FIXTURE in metafunc.fixturenames:
        plugins = metafunc.config.pluginmanager
        plugins.import_plugin(CHECKS_PLUGIN)
        checks: Any = plugins.get_plugin(CHECKS_PLUGIN)
        checks.parametrize(metafunc, FIXTURE)


@pytest.fixture
def conformance_check(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Call it: it runs one check of the kit and gives its outcome to pytest.

    FAIL and MISSING fail, UNSUPPORTED skips, INCONCLUSIVE is an expected failure, each with the
    proof's text.
    """
    run: Callable[[pytest.Item], None] = request.param
    return lambda: run(request.node)
