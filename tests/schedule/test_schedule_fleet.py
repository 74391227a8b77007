"""A real trace over four schedulers: the router's policies share it out, in virtual time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import router_policies
from prefixes.fleet import Worker, share_out
from prefixes.replay import StepCost
from prefixes.trace import best_hits, shrunk

from anychip.bench.load.mooncake import read_blocks
from anychip.plan import CacheLimits
from anychip.router.policies import policy_named

TRACE = Path(__file__).parent / "traces" / "mooncake_conversation_300.jsonl"
PAGE = 16


@pytest.fixture(scope="module")
def prompts():
    calls = shrunk(read_blocks(TRACE), 16)
    return [msgspec.structs.replace(prompt, at=prompt.at / 8) for prompt in calls]


def shared(prompts, policy, windows=(32, 32, 32, 32)):
    longest = max(prompt.length + prompt.output for prompt in prompts)
    limits = [
        CacheLimits(
            pages=100_000 // PAGE,
            page_size=PAGE,
            context_length=longest + 1,
            max_running=window,
            step_tokens=512,
            chunk=512,
        )
        for window in windows
    ]
    workers = [Worker(f"w{n}", limit, StepCost()) for n, limit in enumerate(limits)]
    return share_out(prompts, policy_named(policy), workers)


def test_following_prefixes_finds_nearly_all_that_one_cache_would(prompts):
    found = {name: shared(prompts, name) for name in ("cache_aware", "round_robin", "random")}
    possible = best_hits(prompts, PAGE)
    aware = found["cache_aware"]
    assert aware.cached_tokens > 0.9 * possible
    assert all(
        aware.cached_tokens > 1.3 * found[n].cached_tokens for n in ("round_robin", "random")
    )
    assert aware.busiest < 1.4, "and nobody is given everything"
    assert aware.matched_tokens == pytest.approx(aware.cached_tokens, rel=0.15)
    waits = {name: sum(one.first_token_s) for name, one in found.items()}
    assert waits["cache_aware"] < waits["round_robin"]
    assert all(len(one.first_token_s) == len(prompts) for one in found.values())


def test_a_run_repeats_exactly(prompts):
    assert shared(prompts[:80], "cache_aware") == shared(prompts[:80], "cache_aware")


def test_a_small_window_is_given_less(prompts):
    found = shared(prompts[:150], "least_load", windows=(4, 32))
    assert 0 < found.by_worker[0] < 0.5 * found.by_worker[1]


def test_the_bench_tells_every_policy(capsys, monkeypatch, tmp_path):
    words = ["--requests", "40", "--workers", "2", "--json", str(tmp_path / "found.json")]
    monkeypatch.setattr("sys.argv", ["router_policies.py", str(TRACE), *words])
    router_policies.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 2 |")]
    assert [row.split(" | ")[1] for row in rows] == list(router_policies.COMPARED)
    found = msgspec.json.decode((tmp_path / "found.json").read_bytes())
    assert set(found) == {f"{name} 2" for name in router_policies.COMPARED}
