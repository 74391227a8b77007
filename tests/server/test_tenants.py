"""Several keys: each is a tenant with its own cached prefixes, ids and aborts."""

from __future__ import annotations

import itertools
import threading

import pytest

from anychip.config import ServeConfig
from anychip.engine.messages import StartError
from anychip.http.keys import open_access
from served import bearer, config_for, running, wait_until

FILE = "# tenants\nred red-key\n\nblue  blue-key\n"
COMPLETIONS = "/v1/completions"


def key_file(folder, text=FILE, mode=0o600):
    path = folder / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


@pytest.fixture(scope="module")
def shared(folder, tmp_path_factory):
    file = key_file(tmp_path_factory.mktemp("keys"))
    keys = {"api_key_file": file, "api_key": "plain", "admin_api_key": "boss"}
    with running(config_for(folder, chip_option={"step_s": "0.005"}, **keys)) as server:
        yield server


def asked(server, key, **body):
    with server.http() as http:
        body = {"prompt": "a", "max_tokens": 1, **body}
        return http.post(COMPLETIONS, json=body, headers=bearer(key))


def cached(server, key, prompt, **body):
    answer = asked(server, key, prompt=prompt, **body)
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_every_key_of_the_file_opens_and_others_do_not(shared):
    for key in ("red-key", "blue-key", "plain", "boss"):
        assert asked(shared, key).status_code == 200
    for key in ("red", "red-ke", "RED-KEY", "red red-key", "#"):
        assert asked(shared, key).status_code == 401


def test_tenants_do_not_see_each_others_prefixes(shared):
    prompt = "a prefix of one tenant"
    assert cached(shared, "red-key", prompt) == 0
    assert cached(shared, "red-key", prompt) == 20
    assert cached(shared, "blue-key", prompt) == 0
    assert cached(shared, "plain", prompt) == 0


def test_a_tenant_aborts_its_own_calls_alone_and_an_admin_anybodys(shared):
    answers = {}

    def ask(key):
        answers[key] = asked(shared, key, rid="same", max_tokens=250).json()

    def abort(http, key):
        return http.post("/abort_request", json={"rid": "same"}, headers=bearer(key))

    threads = {key: threading.Thread(target=ask, args=(key,)) for key in ("red-key", "blue-key")}
    for thread in threads.values():
        thread.start()
    with shared.http() as http:
        wait_until(lambda: len(shared.service.live) == 2)  # the same id, each its own
        assert abort(http, "plain").status_code == 404
        assert abort(http, "red-key").json() == {"aborted": 1}
        threads["red-key"].join(20)
        assert answers["red-key"]["choices"][0]["finish_reason"] == "abort"
        assert list(shared.service.live) == [("blue", "same")]
        assert abort(http, "boss").json() == {"aborted": 1}
    threads["blue-key"].join(20)
    assert answers["blue-key"]["choices"][0]["finish_reason"] == "abort"


def test_the_log_names_the_tenant_and_no_key(shared, caplog):
    caplog.set_level("INFO")
    asked(shared, "red-key", rid="mine")
    assert "'mine' of red: 1 tokens in" in caplog.text and "red-key" not in caplog.text


def test_without_an_admin_key_no_tenant_is_an_admin(folder, tmp_path):
    config = config_for(folder, api_key_file=key_file(tmp_path))
    with running(config) as server, server.http() as http:
        for path, body in (("/flush_cache", {}), ("/abort_request", {"abort_all": True})):
            refused = http.post(path, json=body, headers=bearer("red-key"))
            assert refused.status_code == 403 and "--admin-api-key" in refused.text
        shown = http.get("/server_info", headers=bearer("red-key")).text
        assert "blue" not in shown and "key_file" in shown


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_file_that_others_may_open_is_refused(tmp_path, mode):
    file = key_file(tmp_path, mode=mode)
    with pytest.raises(StartError, match=f"mode {mode:04o}.; chmod 600 {file}"):
        open_access(ServeConfig(api_key_file=file))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no key"),
        ("# nothing\n", "it has no key"),
        ("red\n", "line 1 is not 'NAME KEY'"),
        ("red a b\n", "line 1 is not 'NAME KEY'"),
        ("a red\n-x y\n", "line 2 is not 'NAME KEY'"),
        ("r\u00e9d key\n", "line 1 is not 'NAME KEY'"),
        ("red k\x07y\n", "line 1 is not 'NAME KEY'"),
        ("red a\nred b\n", "line 2: red is there twice"),
        ("red a\nblue a\n", "line 2: the key of blue is another's too"),
        ("red boss\n", "the key of red is that of --admin-api-key too"),
        (b"red \xff\n", "it is not UTF-8"),
        ("x" * (2**20 + 1), "longer than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_list_of_keys_is_refused(tmp_path, text, reason):
    with pytest.raises(StartError) as caught:
        open_access(ServeConfig(api_key_file=key_file(tmp_path, text), admin_api_key="boss"))
    told = str(caught.value)
    assert told.startswith("--api-key-file: ") and reason in told
    assert "k\x07y" not in told


def test_a_file_that_is_not_there_is_refused_by_name():
    with pytest.raises(StartError, match="--api-key-file: /none: it cannot be read: No such file"):
        open_access(ServeConfig(api_key_file="/none"))


def test_only_the_key_is_the_key():
    access = open_access(ServeConfig(api_key="a"))
    assert access.needed and access.admin_open
    for given in itertools.chain(("", "b", "aa"), map(chr, range(256))):
        assert (access.caller(given) is None) is (given != "a")
