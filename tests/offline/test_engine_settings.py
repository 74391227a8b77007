"""Keywords of `anychip.Engine`, and a real (tiny) model behind it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading

import pytest

import anychip
from anychip.config import HTTP_ALONE, ConfigError, ServeConfig, from_keywords
from anychip.engine.offline import OfflineEngine
from anychip.model.tiny import write_tiny
from anychip.offline import CallRefused
from anychip.request import SamplingParams
from served import children


def test_the_package_gives_the_engine_when_it_is_asked_for():
    code = (
        "import sys, anychip; assert 'asyncio' not in sys.modules and anychip.__version__\n"
        "from anychip import Engine; assert Engine is anychip.Engine"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert ended.returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'Motor'"):
        _ = anychip.Motor


def test_keywords_are_flags_and_win_over_the_environment(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("page-size: 4\ndtype: float32\n")
    environ = {"ANYCHIP_PAGE_SIZE": "8", "ANYCHIP_BACKEND": "fake"}
    given = {"model": tmp_path, "page_size": 16, "config": str(file), "disable_radix_cache": True}
    config = from_keywords({**given, "chip_option": {"a": 1}, "context_length": None}, "E", environ)
    assert (config.page_size, config.backend, config.dtype) == (16, "fake", "float32")
    assert config.model_path == str(tmp_path) and config.disable_radix_cache
    assert config.chip_option == {"a": "1"} and config.context_length is None


@pytest.mark.parametrize(
    "given, text",
    [
        (
            {"modelpath": "M"},
            "Engine: there is no setting 'modelpath'; the nearest is 'model_path'",
        ),
        ({"pp_size": 2}, "Engine: pp_size is a flag of SGLang that AnyChip does not have: "),
        ({"port": 1}, "Engine: port is for `anychip serve`: nothing listens here"),
        ({"page_size": 0}, "Engine: page_size: 0 is under the least value 1"),
        ({"page_size": "many"}, "Engine: page_size: 'many' is not a whole number"),
        ({"model": "M", "model_path": "M"}, "set twice"),
        ({"backend": "nochip"}, "nochip"),
    ],
)
def test_wrong_keywords_are_refused_before_anything_starts(given, text, tmp_path):
    with pytest.raises(ValueError) as raised:
        anychip.Engine(**{"model_path": str(write_tiny(tmp_path)), **given})
    assert text in str(raised.value)


def test_what_has_a_meaning_over_http_alone_are_settings():
    assert set(HTTP_ALONE) < {field.name for field in dataclasses.fields(ServeConfig)}
    with pytest.raises(ConfigError, match="not both"):
        anychip.Engine(ServeConfig(model_path="M"), page_size=1)


def test_a_tiny_model_answers_as_it_does_in_process(tmp_path):
    path, threads = str(write_tiny(tmp_path)), threading.active_count()
    before = set(children(os.getpid()))  # of what other tests of this process keep open
    config = ServeConfig(model_path=path, backend="fake")
    prompts = [[5, 6, 7], [9] * 20]
    params = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    with OfflineEngine(config) as offline:
        wanted = [completion.token_ids for completion in offline.generate(prompts, params)]
    with anychip.Engine(model_path=path, backend="fake", skip_server_warmup=True) as engine:
        assert engine.info.backend == "fake"
        answers = engine.generate(prompts, max_tokens=12, temperature=0, ignore_eos=True)
        assert [answer.token_ids for answer in answers] == wanted
        assert answers[0].text == engine.detokenize(wanted[0])
        shape = {"response_format": {"type": "json_object"}, "max_tokens": 1}
        assert engine.chat([{"role": "user", "content": "hi"}], **shape).text == "{"
        assert engine.generate("x", regex="[0-9]{4}").finish_reason == "stop"
        with pytest.raises(CallRefused, match="regex"):
            engine.generate("x", regex="(")
        mine = set(children(os.getpid())) - before
        assert len(mine) == 3  # the engine, and what renders templates and checks grammars
    assert set(children(os.getpid())) == before
    assert threading.active_count() == threads
