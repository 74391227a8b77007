from __future__ import annotations

import openai
import pytest
from tokenizers import AddedToken, Tokenizer

from saying_engine import TEMPLATE
from served import config_for, model_folder, running


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    return tmp_path_factory.mktemp("record") / "requests.jsonl"


@pytest.fixture(scope="session")
def server(folder, record):
    options = {"record": str(record)}
    with running(config_for(folder, chip_option=options, random_seed=7)) as server:
        yield server


@pytest.fixture(scope="session")
def http(server):
    with server.http() as client:
        yield client


@pytest.fixture(scope="session")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def slow(folder):
    """A server whose steps take five milliseconds."""
    with running(config_for(folder, chip_option={"step_s": "0.005"})) as server:
        yield server


@pytest.fixture(scope="session")
def saying_folder(tmp_path_factory):
    folder = model_folder(tmp_path_factory.mktemp("saying"))
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.add_special_tokens([AddedToken("<think>"), AddedToken("</think>")])
    core.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def saying(saying_folder):
    config = config_for(saying_folder, context_length=2048, chip_option={"pages": "2048"})
    with running(config, builder="saying_engine:build") as server:
        yield server
