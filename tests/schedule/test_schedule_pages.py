"""The allocator gives each page to one owner and refuses what would break that."""

from __future__ import annotations

import pytest

from anychip.schedule.pages import PageAllocator, PageError


def test_it_hands_out_every_page_but_the_sink_once():
    pages = PageAllocator(5)
    assert sorted(pages.take(5)) == [1, 2, 3, 4, 5]
    assert pages.free_count == 0


def test_a_page_given_back_comes_again():
    pages = PageAllocator(3)
    taken = pages.take(3)
    pages.give_back(taken[1:2])
    assert pages.take(1) == taken[1:2]


def test_too_many_asked_for_changes_nothing():
    pages = PageAllocator(3)
    pages.take(1)
    with pytest.raises(PageError, match="3 pages asked for, 2 of 3 free"):
        pages.take(3)
    assert pages.free_count == 2


def test_double_free_is_refused():
    pages = PageAllocator(3)
    taken = pages.take(2)
    pages.give_back(taken)
    with pytest.raises(PageError, match="freed twice"):
        pages.give_back(taken[:1])


@pytest.mark.parametrize("page", [0, -1, 4])
def test_sink_and_unknown_pages_are_refused(page):
    with pytest.raises(PageError, match="is not one of 1"):
        PageAllocator(3).give_back([page])
