from __future__ import annotations

import pytest

from anychip import Engine
from served import BUILDER, config_for, model_folder, wait_until


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def engine(folder):
    """An Engine over the scripted table, whose steps take five milliseconds."""
    config = config_for(folder, chip_option={"step_s": "0.005"}, max_running_requests=16)
    with Engine(config, builder=BUILDER) as engine:
        yield engine


@pytest.fixture
def idle(engine):
    """The same, and nothing runs when the test ends."""
    yield engine
    wait_until(lambda: engine.stats.running == 0)
