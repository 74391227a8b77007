"""`anychip diagnose` on running servers: hidden causes provoked and found, or not there."""

from __future__ import annotations

import json

import pytest
from scan_servers import loaded

from anychip.cli import diagnose
from anychip.config import ConfigError
from dropped_pages import need_dropped_pages

HIDDEN = ("pool fragmentation", "lock contention", "page migration")


def told(url, capsys):
    """(exit code, findings by name)."""
    with loaded(url):
        code = diagnose.run(["--url", url, "--seconds", "1.5", "--json"])
    return code, {one["name"]: one for one in json.loads(capsys.readouterr().out)}


def test_each_hidden_cause_is_found(slow, capsys):
    code, found = told(slow, capsys)
    assert code == 1
    lock = found["lock contention"]
    assert lock["verdict"] == "found"
    assert "chips/fake/operators_lock.py" in lock["meaning"] and "(passed)" in lock["meaning"]
    pool = found["pool fragmentation"]
    assert pool["verdict"] == "found" and "blocks were not asked for" in pool["evidence"]
    need_dropped_pages()
    assert found["page migration"]["verdict"] == "found"


def test_none_is_found_where_there_is_none(healthy, capsys):
    _, found = told(healthy, capsys)
    assert all(found[name]["verdict"] != "found" for name in HIDDEN)
    assert list(found)[:2] == ["device utilization", "scheduler or operators"]


def test_lines_for_people(healthy, capsys):
    code = diagnose.run(["--url", healthy, "--seconds", "0.5"])
    text = capsys.readouterr().out
    assert "nothing to compute" in text and "lock contention" in text
    assert text.rstrip().endswith("nothing was found") == (code == 0)


def test_who_cannot_be_asked(capsys, tiny):
    assert diagnose.run(["--url", "http://127.0.0.1:9"]) == 2
    assert "http://127.0.0.1:9/server_info" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="is no address"):
        diagnose.run(["--url", "nowhere"])
    with pytest.raises(ConfigError, match="--seconds"):
        diagnose.run(["--seconds", "0"])
