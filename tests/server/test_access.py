from __future__ import annotations

import pytest

from anychip.config import ServeConfig
from anychip.http.listening import is_loopback
from served import bearer, config_for, running

BODY = {"prompt": "a", "max_tokens": 1}


@pytest.fixture(scope="module")
def locked(folder):
    config = config_for(folder, api_key="open-sesame", admin_api_key="boss")
    with running(config) as server:
        yield server


def test_a_key_is_needed(locked):
    with locked.http() as http:
        answer = http.post("/v1/completions", json=BODY)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        wrong = bearer("open-sesam\u00e9")
        assert http.post("/v1/completions", json=BODY, headers=wrong).status_code == 401
        for key in ("open-sesame", "boss"):
            answer = http.post("/v1/completions", json=BODY, headers=bearer(key))
            assert answer.status_code == 200
        assert http.get("/server_info").status_code == 401


def test_probes_need_no_key(locked):
    with locked.http() as http:
        for path in ("/health", "/ready", "/metrics"):
            assert http.get(path).status_code == 200


def test_admin_actions_need_the_admin_key(locked):
    with locked.http() as http:
        for path, body in (("/flush_cache", {}), ("/abort_request", {"abort_all": True})):
            answer = http.post(path, json=body, headers=bearer("open-sesame"))
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "admin_key_required"
            assert http.post(path, json=body, headers=bearer("boss")).status_code == 200
        answer = http.post("/abort_request", json={"rid": "x"}, headers=bearer("open-sesame"))
        assert answer.status_code == 404


def test_the_keys_are_not_shown(locked):
    with locked.http() as http:
        text = http.get("/server_info", headers=bearer("open-sesame")).text
    assert "open-sesame" not in text and "boss" not in text and '"api_key":"(set)"' in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:1"}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:80"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:30000"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[broken"}, 403),
    ],
)
def test_foreign_pages_and_rebound_names_are_refused(http, headers, status):
    answer = http.get("/v1/models", headers=headers)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["code"] == "foreign_origin"


def test_a_server_listens_to_its_own_machine_alone_unless_asked():
    assert is_loopback(ServeConfig().host)
