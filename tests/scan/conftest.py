from __future__ import annotations

import pytest
from scan_servers import SLOW, served

from anychip.model.tiny import write_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("tiny"), layers=1, context=256)


@pytest.fixture(scope="session")
def healthy(tiny):
    with served(tiny) as url:
        yield url


@pytest.fixture(scope="session")
def slow(tiny):
    with served(tiny, *SLOW) as url:
        yield url
