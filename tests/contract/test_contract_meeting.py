"""Ranks meet over TCP: who comes, who does not, and who has no business there."""

import socket
import threading
import time

import pytest

from anychip.contract.meeting import hand_out


@pytest.fixture
def address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{found.getsockname()[1]}"


def come(results: dict, rank: int, world: int, address: str, seconds: float = 10) -> None:
    content = b"from rank 0!" if rank == 0 else bytes(12)
    try:
        results[rank] = hand_out(rank, world, address, content, seconds)
    except OSError as error:
        results[rank] = error


def all_come(calls: list[tuple]) -> dict:
    results: dict = {}
    threads = [threading.Thread(target=come, args=(results, *call)) for call in calls]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_every_rank_gets_what_rank_0_has_whoever_comes_first(address, order):
    results = all_come([(rank, 3, address) for rank in order])
    assert results == dict.fromkeys(range(3), b"from rank 0!")


def test_rank_0_names_the_ranks_that_did_not_come(address):
    results = all_come([(0, 3, address, 0.8), (1, 3, address)])
    assert isinstance(results[0], TimeoutError)
    assert str(results[0]) == "no sign of rank 2 of 3"
    assert results[1] == b"from rank 0!"


def test_a_rank_without_rank_0_ends_in_time(address):
    assert isinstance(all_come([(1, 2, address, 0.5)])[1], TimeoutError)


def test_another_world_is_sent_away_and_the_right_rank_still_served(address):
    results = all_come([(0, 2, address), (5, 9, address), (1, 2, address)])
    assert isinstance(results[5], ConnectionError)
    assert results[1] == results[0] == b"from rank 0!"


def test_a_silent_visitor_and_one_that_leaves_take_nobodys_place(address, monkeypatch):
    monkeypatch.setattr("anychip.contract.meeting.PATIENCE", 0.2)
    results: dict = {}
    waiting = threading.Thread(target=come, args=(results, 0, 2, address))
    waiting.start()
    where = ("127.0.0.1", int(address.rpartition(":")[2]))
    time.sleep(0.2)
    silent = socket.create_connection(where)
    socket.create_connection(where).close()
    come(results, 1, 2, address)
    waiting.join()
    silent.close()
    assert results == {0: b"from rank 0!", 1: b"from rank 0!"}


@pytest.mark.parametrize("address", ["127.0.0.1:99", "tcp://127.0.0.1", "file:///x", "tcp://:5"])
def test_other_addresses_are_refused_by_name(address):
    with pytest.raises(ValueError, match="tcp://host:port"):
        hand_out(0, 2, address, b"", 1)
