"""`--record`: what a served request leaves in the file, by privacy."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import pytest

from anychip.config import ConfigError, ServeConfig
from anychip.engine.messages import StartError
from anychip.record.reader import read_record
from anychip.server.exposure import exposures
from served import config_for, model_folder, running, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


def recorded(folder, path, ask, **settings):
    """What a server wrote while `ask(client)` ran."""
    config = config_for(folder, record=str(path), **settings)
    with running(config) as server, server.http() as client:
        ask(client)
    return read_record(path)


def completion(client, **fields):
    body = {"prompt": "abc", "max_tokens": 4, "temperature": 0, **fields}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def kept(folder, tmp_path_factory):
    """Of one server that was asked all sorts of things: the record, its file, and its counts."""
    path, counts = tmp_path_factory.mktemp("record") / "r", {}

    def ask(client):
        completion(client, stop="zz", ignore_eos=True)
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "seed": 7}
        assert client.post("/v1/chat/completions", json=chat).status_code == 200
        failed = client.post("/v1/completions", json={"prompt": "a\x03", "max_tokens": 4})
        assert failed.status_code == 500
        asked = {"prompt": "leaves", "max_tokens": 200, "stream": True}
        with client.stream("POST", "/v1/completions", json=asked) as answer:
            next(answer.iter_lines())
        completion(client, prompt=["ab", "xy"], n=2)
        at_once(client, 30)
        wait_until(lambda: client.get("/server_info").json()["live_requests"] == 0)
        counts.update(client.get("/server_info").json()["record"])
        assert client.post("/v1/completions", json={"prompt": "a\x02"}).status_code >= 500

    record = recorded(folder, path, ask, chip_option={"step_s": "0.005"})
    by_prompt = {}
    for one in record.requests:
        by_prompt.setdefault(bytes(token for token in one.prompt if token < 256), []).append(one)
    return SimpleNamespace(record=record, path=path, counts=counts, of=by_prompt)


def at_once(client, clients: int) -> None:
    def one(number: int) -> None:
        completion(client, prompt=f"{number:03}", max_tokens=3)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_tokens_and_times_of_a_request_are_in_the_record(kept):
    header, (one,) = kept.record.header, kept.of[b"abc"]
    assert (header.model, header.chip, header.privacy) == ("tiny", "scripted", "tokens")
    assert one.endpoint == "/v1/completions" and bytes(one.response) == b"defg"
    assert one.params == {"temperature": 0, "ignore_eos": True, "stop": ["zz"]}
    assert (one.max_tokens, one.response_tokens, one.finish) == (4, 4, "length")
    assert len(one.times) == 4 and one.times == sorted(one.times)
    assert one.times[-1] <= one.total_s and one.text is None


def test_a_chat_is_recorded_as_the_template_wrote_it(kept):
    ((prompt, (chat,)),) = [item for item in kept.of.items() if b"hi" in item[0]]
    assert chat.endpoint == "/v1/chat/completions" and prompt.startswith(b"user")
    assert chat.params["seed"] == 7 and chat.at_s >= kept.of[b"abc"][0].at_s


def test_what_did_not_end_well_is_recorded_too(kept):
    (failed,), (left,) = kept.of[b"a\x03"], kept.of[b"leaves"]
    assert (failed.finish, failed.error) == ("error", "engine_error")
    (killed,) = kept.of[b"a\x02"]  # with the whole engine
    assert killed.finish == "error" and killed.error is not None
    assert left.finish == "abort" and 1 <= left.response_tokens < 200


def test_every_choice_has_a_line(kept):
    assert len(kept.of[b"ab"]) == len(kept.of[b"xy"]) == 2
    ids = [one.id for one in kept.record.requests]
    assert sorted(ids) == list(range(1, len(ids) + 1))


def test_many_clients_are_all_recorded_and_counted(kept):
    assert all(f"{n:03}".encode() in kept.of for n in range(30))
    assert kept.counts["written"] <= len(kept.record.requests) and kept.counts["lost"] == 0


def test_lines_are_json_for_any_reader(kept):
    header, *lines = map(json.loads, kept.path.read_text().splitlines())
    assert header["format"] == "anychip-record" and header["version"] == 1
    assert len(lines) == len(kept.record.requests) and "text" not in lines[0]


def test_text_is_beside_the_tokens_where_it_is_asked_for(folder, tmp_path):
    record = recorded(folder, tmp_path / "r", completion, record_privacy="text")
    (one,) = record.requests
    assert (one.text, one.response_text) == ("abc", "defg") and bytes(one.prompt) == b"abc"


def test_lengths_hold_nothing_of_what_was_written(folder, tmp_path):
    secret = "topsecret" * 20

    def ask(client):
        for prompt in (secret, secret + "!", "other"):
            completion(client, prompt=prompt, stop="quiet", cache_salt="mysalt", rid="me" + prompt)

    record = recorded(folder, tmp_path / "r", ask, record_privacy="lengths")
    text = (tmp_path / "r").read_text()
    for word in ("secret", "quiet", "mysalt", "other", "defg"):
        assert word not in text
    assert str(list(secret.encode()))[1:40] not in text
    one, two, three = record.requests
    assert one.prompt is None and one.response is None and one.prompt_tokens == 180
    assert len(one.blocks) == 3 and one.blocks[:2] == two.blocks[:2]
    assert one.blocks[2] != two.blocks[2] and three.blocks[0] != one.blocks[0]
    assert one.space and one.space == two.space
    assert len(one.times) == one.response_tokens == 4


def test_a_second_start_keeps_the_first_record(folder, tmp_path):
    recorded(folder, tmp_path / "r", completion)
    recorded(folder, tmp_path / "r", lambda client: None)
    assert len(read_record(tmp_path / "r.1").requests) == 1
    assert not read_record(tmp_path / "r").requests


def test_a_record_that_cannot_be_written_is_refused_before_the_engine_starts(folder, tmp_path):
    config = config_for(folder, record=str(tmp_path / "no" / "r"), chip_option={"start_error": "x"})
    with pytest.raises(StartError, match=r"--record: .* there is no folder"), running(config):
        pass


def test_settings_without_a_record_are_refused():
    for settings in ({"record_privacy": "lengths"}, {"record_max_bytes": 5000}, {"record_keep": 1}):
        with pytest.raises(ConfigError, match="nothing is recorded; add --record"):
            ServeConfig(**settings)


def test_the_start_says_loudly_that_texts_are_recorded():
    (told,) = exposures(ServeConfig(record="r"), locked=True)
    assert "THE RECORD HOLDS PROMPTS AND ANSWERS (r, --record-privacy tokens)" in told
    assert not exposures(ServeConfig(record="r", record_privacy="lengths"), locked=True)
