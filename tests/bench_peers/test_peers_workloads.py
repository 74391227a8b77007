"""The workloads are those of issue 4: counts, lengths, what is shared and what is not."""

from __future__ import annotations

import pytest
from race.workloads import HIGHEST, LOWEST, STREAMS, TITLES, batches, warm_up


def shape(batch) -> list[tuple[int, int]]:
    return [(len(job.prompt), job.length) for job in batch.jobs]


def only(name: str, repeat: int = 0):
    (batch,) = batches(name, repeat)
    return batch


def test_w1_is_one_stream() -> None:
    batch = only("W1")
    assert (batch.label, shape(batch), batch.at_once) == ("W1", [(128, 128)], 1)


def test_w2_is_32_at_once_of_mixed_lengths() -> None:
    batch = only("W2")
    assert len(batch.jobs) == batch.at_once == 32
    prompts, answers = zip(*shape(batch), strict=True)
    assert 128 <= min(prompts) < 200 and 440 < max(prompts) <= 512
    assert 64 <= min(answers) < 80 and 112 < max(answers) <= 128


def test_w3_shares_a_prefix_and_nothing_else() -> None:
    batch = only("W3")
    assert batch.at_once == 8 and shape(batch) == [(1088, 32)] * 32
    assert len({job.prompt[:1024] for job in batch.jobs}) == 1
    assert len({job.prompt[1024:] for job in batch.jobs}) == 32


def test_w4_is_one_long_prompt() -> None:
    assert shape(only("W4")) == [(4096, 1)]


def test_w5_doubles_the_streams() -> None:
    found = batches("W5", 0)
    assert [b.at_once for b in found] == [len(b.jobs) for b in found] == list(STREAMS)
    assert [b.label for b in found][-1] == "W5-64"
    assert {size for batch in found for size in shape(batch)} == {(64, 64)}


@pytest.mark.parametrize("name", TITLES)
def test_repeats_have_the_same_lengths_and_other_contents(name: str) -> None:
    first, again, second = batches(name, 0), batches(name, 0), batches(name, 1)
    assert first == again
    assert [shape(batch) for batch in first] == [shape(batch) for batch in second]
    starts = {job.prompt[:32] for batch in first for job in batch.jobs}
    assert not starts & {job.prompt[:32] for batch in second for job in batch.jobs}


@pytest.mark.parametrize("name", TITLES)
def test_prompts_are_of_ordinary_word_pieces(name: str) -> None:
    for batch in batches(name, 3):
        assert all(LOWEST <= id < HIGHEST for job in batch.jobs for id in job.prompt)


def test_nothing_of_one_workload_is_found_again_in_another() -> None:
    starts = [batch.jobs[0].prompt[:16] for name in TITLES for batch in batches(name, 0)]
    starts.append(warm_up().jobs[0].prompt[:16])
    assert len(set(starts)) == len(starts)


def test_batches_count_their_tokens() -> None:
    batch = only("W3")
    assert (batch.prompt_tokens, batch.asked) == (32 * 1088, 32 * 32)


def test_shrunk_workloads_keep_their_kind() -> None:
    (batch,) = batches("W3", 0, shrink=16)
    assert shape(batch) == [(64 + 4, 2)] * 2 and batch.at_once == 1
    assert [b.at_once for b in batches("W5", 0, shrink=16)] == [1, 2, 4]
    assert shape(batches("W4", 0, shrink=10**6)[0]) == [(1, 1)]


def test_unknown_workload_is_an_error() -> None:
    with pytest.raises(KeyError):
        batches("W6", 0)
