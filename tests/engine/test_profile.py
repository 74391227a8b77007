"""Profiles of an engine: what they hold, how they end, and that answers do not change."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections import Counter, defaultdict

import msgspec
import pytest

from answers.equality import config, greedy
from anychip.contract.layer import empty_slots
from anychip.engine import profile as module
from anychip.engine.messages import ProfileWish
from anychip.engine.offline import OfflineEngine
from anychip.engine.profile_stacks import Stacks
from anychip.model.tiny import write_tiny
from served import ENVIRONMENT

PROMPTS = ["hello there", "a longer prompt for the second of the rows"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=["fake", "cpu"])
def offline(request, folder):
    with OfflineEngine(config(folder, backend=request.param), overlap=True) as offline:
        yield offline


class Ends(list):
    """What profiles said at their end."""

    def __init__(self) -> None:
        self.there = threading.Event()

    def __call__(self, ended) -> None:
        self.append(ended)
        self.there.set()

    def wait(self):
        assert self.there.wait(60)
        return self[-1]


def slices(path) -> dict[str, list[dict]]:
    """Slices by lane, in order of their begin; the file is checked on the way."""
    document = json.loads(path.read_text())
    events = document["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0
            found[names[event["tid"]]].append(event)
    for lane in found.values():
        lane.sort(key=lambda e: (e["ts"], -e["dur"]))
        check_nested(lane)
    return found


def check_nested(lane: list[dict]) -> None:
    """A viewer can draw them: each lies within the one before it that is open, or behind it."""
    ends = []
    for event in lane:
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        end = event["ts"] + event["dur"]
        assert not ends or end <= ends[-1], event
        ends.append(end)


def test_a_profile_shows_steps_operators_copies_and_python(offline, tmp_path):
    plain = [one.token_ids for one in offline.generate(PROMPTS, greedy(12))]
    offline.engine.flush_cache()
    path, ends = tmp_path / "sub" / "one.trace.json", Ends()
    offline.engine.start_profile(ProfileWish(path=str(path), seconds=60.0), ends)
    with pytest.raises(ValueError, match=r"a profile runs already, into .*one\.trace\.json"):
        offline.engine.start_profile(ProfileWish(path="other", seconds=1.0), ends)
    profiled = [one.token_ids for one in offline.generate(PROMPTS, greedy(12))]
    offline.engine.stop_profile()
    ended = ends.wait()
    assert profiled == plain
    assert (ended.error, ended.reason, ended.nbytes) == ("", "asked", path.stat().st_size)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = slices(path)
    steps = found["steps"]
    assert ended.steps == len(steps) >= 12
    assert steps[0]["args"]["prefill_rows"] == 2 and steps[-1]["args"]["decoding_rows"] == 2
    operators = found["operators, each waited for"]
    counted = Counter(e["name"] for e in operators)
    assert counted["embedding"] == len(steps)
    assert operators[0]["args"]["timing"] == "waited for"
    for step in steps:  # each has its own operators, and they lie in it
        mine = [e for e in operators if step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        assert len(mine) == len(operators) // len(steps)
    copies = found["copies between host and device"]
    in_place = "host_view" not in empty_slots(type(offline.engine.runner._unwatched))
    into = set() if in_place else {"to the device"}  # numbers are written where they are read
    assert {e["name"] for e in copies} == {"to the host", *into}
    assert all(e["args"]["bytes"] > 0 for e in copies)
    kinds = {e["name"] for e in found["scheduler: plan, wait, commit"]}
    assert kinds == {"plan", "wait", "commit"}
    assert any(name.startswith("Python: ") for name in found)


def test_masks_come_in_time_while_operators_are_waited_for(offline, tmp_path):
    params = msgspec.structs.replace(greedy(6), allowed_token_ids=(65, 66, 67))
    plain = offline.generate(PROMPTS, params)
    path, ends = tmp_path / "masks.json", Ends()
    offline.engine.start_profile(ProfileWish(path=str(path), seconds=60.0), ends)
    assert offline.generate(PROMPTS, params)[0].token_ids == plain[0].token_ids
    offline.engine.stop_profile()
    ends.wait()
    assert "mask_logits" in {e["name"] for e in slices(path)["operators, each waited for"]}


def test_a_profile_ends_by_itself_and_another_may_begin(offline, tmp_path):
    for number in (1, 2):
        path, ends = tmp_path / f"{number}.json", Ends()
        wish = ProfileWish(path=str(path), seconds=60.0, steps=3, activities=("COPIES",))
        offline.engine.start_profile(wish, ends)
        offline.generate(PROMPTS, greedy(8))
        ended = ends.wait()
        assert (ended.reason, ended.steps) == ("steps", 3)
        found = slices(path)
        assert len(found["steps"]) == 3
        assert "operators, each waited for" not in found
        assert not any(name.startswith("Python") for name in found)
    with pytest.raises(ValueError, match="no profile runs"):
        offline.engine.stop_profile()


def test_time_and_bytes_end_it_too(offline, tmp_path, monkeypatch):
    ends = Ends()
    offline.engine.start_profile(ProfileWish(path=str(tmp_path / "a"), seconds=0.1), ends)
    assert ends.wait().reason == "time"  # also where no step comes
    monkeypatch.setattr(module, "MOST_BYTES", 5000)
    ends = Ends()
    # Without stacks: at the end each thread's is written, and other tests may have left many.
    wish = ProfileWish(path=str(tmp_path / "b"), seconds=60.0, activities=("OPERATORS",))
    offline.engine.start_profile(wish, ends)
    offline.generate(PROMPTS, greedy(8))
    assert ends.wait().reason == "bytes"
    assert (tmp_path / "b").stat().st_size < 50_000


def test_what_goes_wrong_ends_the_profile_alone(offline, tmp_path, monkeypatch):
    ends = Ends()
    offline.engine.start_profile(ProfileWish(path="/proc/none/a", seconds=60.0), ends)
    assert len(offline.generate(PROMPTS, greedy(4))[0].token_ids) == 4
    offline.engine.stop_profile()
    assert "FileNotFoundError" in ends.wait().error or "OSError" in ends[-1].error
    monkeypatch.setattr(Stacks, "look", lambda self, now: 1 / 0)
    ends = Ends()
    offline.engine.start_profile(ProfileWish(path=str(tmp_path / "b"), seconds=60.0), ends)
    assert "ZeroDivisionError" in ends.wait().error
    assert len(offline.generate(PROMPTS, greedy(4))[0].token_ids) == 4
    assert not (tmp_path / "b").exists()


def test_a_profile_that_runs_when_the_engine_ends_is_kept(folder, tmp_path):
    path, ends = tmp_path / "last.json", Ends()
    with OfflineEngine(config(folder, backend="fake")) as offline:
        offline.engine.start_profile(ProfileWish(path=str(path), seconds=60.0), ends)
        offline.generate(PROMPTS, greedy(2))
    assert ends.wait().reason == "the engine ends"
    assert slices(path)["steps"]


def test_stacks_are_closed_from_the_inside():
    told, go, seen = [], threading.Event(), threading.Event()

    def inner() -> None:
        seen.set()
        go.wait(60)

    def outer() -> None:
        inner()

    stacks = Stacks(lambda thread, ended, end: told.append((ended.code.co_name, ended.begin, end)))
    thread = threading.Thread(target=outer)
    thread.start()
    seen.wait(60)
    stacks.look(1.0)
    stacks.look(2.0)
    assert [one for one in told if one[0] in ("inner", "outer")] == []
    go.set()
    thread.join()
    stacks.look(3.0)
    ours = [one for one in told if one[0] in ("inner", "outer")]
    assert ours == [("inner", 1.0, 3.0), ("outer", 1.0, 3.0)]
    assert sys._getframe().f_code.co_name not in {name for name, *_ in told}


FULL = """
import resource, sys, threading
from anychip.engine.messages import ProfileWish
from anychip.engine.profile import Profile
ended = []
wish = ProfileWish(path=sys.argv[1], seconds=60.0, steps=None, activities=("COPIES",))
profile = Profile(wish, ended.append)
profile.start()
for at in range(2000):
    profile.copy(at, profile._begun, profile._begun + 1, into=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
profile.end("asked")
profile.join()
print(ended[0].error)
"""


def test_half_a_profile_does_not_stay_on_a_full_disk(tmp_path):
    """In a process whose files may be no longer than 4 KiB."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "p.trace.json")]
    told = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "File too large" in told.stdout
    assert list(tmp_path.iterdir()) == []
