"""What each worker was given: the longest beginning, oldest forgotten first, bounded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anychip.router.prefixes import BLOCK, Prefixes, chain_of, tokens_of


def blocks(*letters):
    return b"".join(letter.encode() * BLOCK for letter in letters)


def chain(*letters):
    return chain_of("m", blocks(*letters))


def test_a_chain_has_a_number_for_each_whole_block():
    assert len(chain_of("m", blocks("a", "b") + b"rest")) == 2
    assert chain_of("m", b"short") == []
    assert tokens_of(3) == 96


def test_equal_beginnings_are_equal_numbers_and_nothing_else_is():
    one, other = chain("a", "b", "c"), chain("a", "x", "c")
    assert one[0] == other[0]
    assert one[1] != other[1] and one[2] != other[2], "the same block behind another beginning"
    assert chain_of("m", blocks("a")) != chain_of("n", blocks("a"))
    assert chain_of(None, blocks("a")) == chain_of(None, blocks("a"))


def test_the_longest_beginning_is_found_of_each_worker():
    prefixes = Prefixes()
    prefixes.keep("one", chain("a", "b", "c"))
    prefixes.keep("two", chain("a", "x"))
    assert prefixes.matched("one", chain("a", "b", "c", "d")) == 3
    assert prefixes.matched("one", chain("a", "b")) == 2
    assert prefixes.matched("two", chain("a", "b", "c")) == 1
    assert prefixes.matched("two", chain("x")) == 0
    assert prefixes.matched("none", chain("a")) == 0


def test_forgetting_a_worker_forgets_no_other():
    prefixes = Prefixes()
    for name in ("one", "two"):
        prefixes.keep(name, chain("a"))
    prefixes.forget("one")
    prefixes.forget("never seen")
    assert [prefixes.matched(name, chain("a")) for name in ("one", "two")] == [0, 1]


def test_the_oldest_goes_first_and_its_end_before_its_beginning():
    prefixes = Prefixes(most_blocks=4)
    prefixes.keep("w", chain("a", "b", "c"))
    prefixes.keep("w", chain("x", "y"))
    assert prefixes.blocks("w") == 4
    assert prefixes.matched("w", chain("a", "b", "c")) == 2
    assert prefixes.matched("w", chain("x", "y")) == 2
    prefixes.keep("w", chain("a"))
    prefixes.keep("w", chain("z"))
    assert prefixes.matched("w", chain("a", "b")) == 1, "its beginning was used again"


def test_more_than_is_kept_of_a_worker_keeps_the_beginning():
    prefixes = Prefixes(most_blocks=2)
    prefixes.keep("w", chain("a", "b", "c"))
    assert (prefixes.matched("w", chain("a", "b", "c")), prefixes.blocks("w")) == (2, 2)


@settings(deadline=None, max_examples=120)
@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), max_size=25),
    st.integers(1, 8),
)
def test_halving_finds_what_looking_at_each_block_finds(prompts, most):
    prefixes = Prefixes(most)
    chains = [chain(*letters) for letters in prompts]
    for kept in chains:
        prefixes.keep("w", kept)
        assert prefixes.blocks("w") <= most
        assert prefixes.matched("w", kept) == min(len(kept), most)
        assert not [wrong for one in chains for wrong in prefixes.check("w", one)]
