from __future__ import annotations

import pytest
from text_samples import gguf_writer

from anychip.text.load import open_tokenizer


@pytest.fixture(scope="session")
def demo(demo_model):
    return open_tokenizer(demo_model)


@pytest.fixture
def write_gguf(tmp_path):
    return gguf_writer(tmp_path)
