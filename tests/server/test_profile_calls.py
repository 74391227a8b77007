"""/start_profile and /stop_profile over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from anychip.engine.messages import StartError
from served import bearer, config_for, running, wait_until

BODY = {"prompt": "abc", "max_tokens": 4}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture(scope="module")
def profiled(folder, root):
    config = config_for(folder, profile_dir=str(root), admin_api_key="boss")
    with running(config) as server:
        yield server


@pytest.fixture(scope="module")
def admin(profiled):
    with httpx.Client(base_url=profiled.url, timeout=60, headers=bearer("boss")) as client:
        yield client


def test_from_start_to_file(admin, root):
    begun = admin.post("/start_profile")
    assert begun.status_code == 200, begun.text
    again = admin.post("/start_profile", json={})
    assert (again.status_code, again.json()["error"]["code"]) == (400, "profile_runs")
    admin.post("/v1/completions", json=BODY)
    ended = admin.post("/stop_profile").json()
    assert ended["path"] == begun.json()["path"] and ended["success"]
    assert ended["path"].startswith(f"{root}/profile-")
    document = json.loads(Path(ended["path"]).read_text())
    assert "commit" in {event["name"] for event in document["traceEvents"]}
    late = admin.post("/stop_profile")
    assert (late.status_code, late.json()["error"]["code"]) == (400, "no_profile")


def test_a_folder_of_its_own_and_an_end_by_itself(admin, root):
    asked = {"output_dir": "mine", "seconds": 0.1, "activities": ["CPU", "GPU"], "num_steps": 100}
    begun = admin.post("/start_profile", json={**asked, "profile_id": "one"}).json()
    assert begun["path"].startswith(f"{root}/mine/one-")
    wait_until(lambda: list((root / "mine").glob("one-*.trace.json")))
    assert [path.name for path in (root / "mine").iterdir()] == [begun["path"].split("/")[-1]]
    wait_until(lambda: f"{begun['path']} (time)" in admin.post("/stop_profile").text)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"output_dir": "/etc"}, "output_dir"),
        ({"output_dir": "../out"}, "output_dir"),
        ({"num_steps": 0}, "num_steps"),
        ({"seconds": 3600}, "seconds"),
        ({"activities": ["CPU", "MEM"]}, "activities"),
        ({"profile_id": "a/b"}, "profile_id"),
        ({"profile_by_stage": True}, "profile_by_stage"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_name(admin, asked, field):
    answer = admin.post("/start_profile", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


def test_a_client_that_is_gone_leaves_a_profile_that_ends_and_can_be_ended(profiled, admin, root):
    with httpx.Client(base_url=profiled.url, timeout=60, headers=bearer("boss")) as gone:
        assert gone.post("/start_profile", json={"profile_id": "left"}).status_code == 200
        task = gone.build_request("POST", "/v1/completions", json={**BODY, "stream": True})
        gone.send(task, stream=True)  # and nobody reads it
    assert admin.post("/start_profile").json()["error"]["code"] == "profile_runs"
    assert admin.post("/stop_profile").json()["success"]
    asked = {"profile_id": "alone", "seconds": 0.2}
    with httpx.Client(base_url=profiled.url, timeout=60, headers=bearer("boss")) as gone:
        assert gone.post("/start_profile", json=asked).status_code == 200
    wait_until(lambda: list(root.glob("alone-*.trace.json")))
    assert admin.post("/start_profile").status_code == 200  # the next one begins
    assert admin.post("/stop_profile").status_code == 200


def test_a_profile_that_fails_has_no_file_and_says_so(admin, root):
    (root / "taken").write_text("no folder")
    assert admin.post("/start_profile", json={"output_dir": "taken"}).status_code == 200
    failed = admin.post("/stop_profile")
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "profile_failed")
    late = admin.post("/stop_profile").json()["error"]["message"]
    assert "the last one failed and has no file: " in late and "became" not in late


def test_a_folder_that_cannot_be_is_refused_before_the_engine_starts(folder, root):
    (root / "file").write_text("no folder")
    config = config_for(folder, profile_dir=str(root / "file"), chip_option={"start_error": "x"})
    told = r"--profile-dir: cannot write to .*file"
    with pytest.raises(StartError, match=told), running(config):
        pass


def test_a_link_out_of_the_folder_is_not_followed(admin, root, tmp_path):
    (root / "link").symlink_to(tmp_path)
    assert admin.post("/start_profile", json={"output_dir": "link"}).status_code == 400


@pytest.mark.parametrize("path", ["/start_profile", "/stop_profile"])
def test_both_need_the_admin_key(profiled, path):
    with profiled.http() as http:
        answer = http.post(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "admin_key_required")


def test_without_a_folder_there_are_none(http):
    answer = http.post("/start_profile")
    assert answer.status_code == 400
    assert "--profile-dir" in answer.json()["error"]["message"]


def test_an_engine_that_dies_is_told_to_whoever_waits(folder, root):
    config = config_for(folder, profile_dir=str(root), chip_option={"step_s": "0.2"})
    with running(config) as server, server.http() as http:
        assert http.post("/start_profile").status_code == 200
        answer = http.post("/v1/completions", json={"prompt": "a\x02"})
        assert answer.status_code == 500
        assert http.post("/stop_profile").status_code in (400, 503)
        wait_until(lambda: http.get("/ready").status_code == 200)
        begun = http.post("/start_profile")  # the next engine knows nothing of the last profile
        assert begun.status_code == 200
        ended = http.post("/stop_profile").json()
        assert ended["success"] and ended["path"] == begun.json()["path"]
