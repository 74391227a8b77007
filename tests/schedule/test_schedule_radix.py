"""The tree alone: matching, splitting, locks, order of eviction, namespaces."""

from __future__ import annotations

import random

import pytest

from anychip.schedule.radix import RadixTree


def store(tree, tokens, pages, namespace=""):
    """Insert from the root and let go, as a finished request does."""
    node, known = tree.insert(tree.root(namespace), tokens, pages)
    tree.lock(node)
    tree.unlock(node)
    return known


def found(tree, tokens, namespace=""):
    return tree.match(namespace, tokens)[1]


def test_an_empty_tree_finds_nothing():
    tree = RadixTree(1)
    assert found(tree, [1, 2, 3]) == []
    assert found(tree, []) == []


def test_a_match_is_the_longest_common_prefix():
    tree = RadixTree(1)
    assert store(tree, [1, 2, 3, 4], [11, 12, 13, 14]) == []
    assert found(tree, [1, 2, 3, 4, 5]) == [11, 12, 13, 14]
    assert found(tree, [1, 2, 9, 4]) == [11, 12]
    assert found(tree, [2, 3]) == []


@pytest.mark.parametrize("size", [2, 4, 16, 128])
def test_matches_are_whole_pages(size):
    tree = RadixTree(size)
    tokens = list(range(3 * size))
    store(tree, tokens, [1, 2, 3])
    assert found(tree, tokens[: 2 * size - 1]) == [1]
    assert found(tree, [*tokens[: 2 * size - 1], -5, *tokens[2 * size :]]) == [1]
    assert found(tree, tokens[: 2 * size]) == [1, 2]
    assert found(tree, tokens) == [1, 2, 3]


def test_insert_reports_the_pages_it_had_and_takes_only_the_rest():
    tree = RadixTree(2)
    store(tree, [1, 2, 3, 4], [5, 6])
    assert store(tree, [1, 2, 3, 4, 7, 8], [15, 16, 17]) == [5, 6]
    assert found(tree, [1, 2, 3, 4, 7, 8]) == [5, 6, 17]
    assert tree.evictable == 3


def test_a_split_keeps_the_holder_on_the_same_tokens():
    tree = RadixTree(1)
    node, _ = tree.insert(tree.root(""), [1, 2, 3, 4], [1, 2, 3, 4])
    tree.lock(node)
    store(tree, [1, 2, 8], [1, 2, 9])
    path = []
    step = node
    while step is not None:
        path = step.tokens.tolist() + path
        step = step.parent
    assert path == [1, 2, 3, 4]
    assert (tree.locked, tree.evictable) == (4, 1)
    tree.unlock(node)
    assert (tree.locked, tree.evictable) == (0, 5)


def test_a_lock_holds_the_whole_path_against_eviction():
    tree = RadixTree(1)
    store(tree, [1, 2, 3], [1, 2, 3])
    store(tree, [1, 2, 4, 5], [0, 0, 4, 5])
    node, _ = tree.match("", [1, 2, 4])
    tree.lock(node)
    assert sorted(tree.evict(99)) == [3, 5]
    assert (tree.locked, tree.evictable) == (3, 0)
    assert tree.evict(1) == []
    tree.unlock(node)
    assert sorted(tree.evict(99)) == [1, 2, 4]


def test_two_locks_need_two_unlocks():
    tree = RadixTree(1)
    store(tree, [1], [1])
    node, _ = tree.match("", [1])
    tree.lock(node)
    tree.lock(node)
    tree.unlock(node)
    assert tree.evict(1) == []
    tree.unlock(node)
    assert tree.evict(1) == [1]


def test_a_lock_can_be_moved_down_its_path():
    tree = RadixTree(1)
    upper, _ = tree.insert(tree.root(""), [1, 2], [1, 2])
    tree.lock(upper)
    lower, _ = tree.insert(upper, [3], [3])
    tree.lock(lower, below=upper)
    assert (upper.lock, lower.lock, tree.locked) == (1, 1, 3)
    tree.unlock(lower)
    assert (upper.lock, lower.lock, tree.evictable) == (0, 0, 3)


def test_eviction_takes_the_least_recently_used_first():
    tree = RadixTree(1)
    for name in (1, 2, 3):
        store(tree, [name], [name])
    found(tree, [1])
    assert [tree.evict(1), tree.evict(1), tree.evict(1)] == [[2], [3], [1]]


def test_a_parent_is_evicted_after_its_children_and_by_its_own_age():
    tree = RadixTree(1)
    store(tree, [1], [1])
    store(tree, [1, 2], [0, 2])
    store(tree, [7], [7])
    found(tree, [1])
    assert [tree.evict(1), tree.evict(1), tree.evict(1)] == [[2], [7], [1]]


def test_eviction_cuts_no_more_than_asked_and_from_the_end():
    tree = RadixTree(2)
    store(tree, list(range(10)), [1, 2, 3, 4, 5])
    assert tree.evict(2) == [4, 5]
    assert found(tree, list(range(10))) == [1, 2, 3]
    assert tree.evictable == 3


def test_namespaces_share_nothing():
    tree = RadixTree(1)
    store(tree, [1, 2], [1, 2], "a")
    assert found(tree, [1, 2], "b") == []
    assert store(tree, [1, 2], [3, 4], "b") == []
    assert (found(tree, [1, 2], "a"), found(tree, [1, 2], "b")) == ([1, 2], [3, 4])


def test_empty_namespaces_are_forgotten():
    tree = RadixTree(1)
    for salt in range(50):
        store(tree, [1], [salt + 1], str(salt))
    tree.evict(50)
    assert list(tree.nodes()) == []
    node, _ = tree.match("x", [1])
    tree.lock(node)
    assert len(list(tree.nodes())) == 1
    tree.unlock(node)
    assert list(tree.nodes()) == []


def test_clear_leaves_what_is_locked():
    tree = RadixTree(1)
    store(tree, [1, 2], [1, 2])
    store(tree, [5], [5])
    node, _ = tree.match("", [1])
    tree.lock(node)
    assert sorted(tree.clear()) == [2, 5]
    assert found(tree, [1, 2]) == [1]


def test_the_heap_does_not_grow_with_use():
    tree = RadixTree(1)
    store(tree, [1, 2, 3], [1, 2, 3])
    for _ in range(1000):
        node, _ = tree.match("", [1, 2, 3])
        tree.lock(node)
        tree.unlock(node)
    assert len(tree.leaves.entries()) <= 1


@pytest.mark.parametrize("size", [1, 3])
def test_against_a_plain_list_of_prefixes(size):
    """Without eviction the longest match is what comparing with every stored sequence gives."""
    rng, tree, kept, page = random.Random(size), RadixTree(size), [], 0
    for _ in range(300):
        tokens = [rng.randrange(3) for _ in range(rng.randrange(0, 24))]
        best = max((_common_pages(tokens, other, size) for other in kept), default=0)
        assert len(found(tree, tokens)) == best
        whole = len(tokens) // size
        known = store(tree, tokens[: whole * size], list(range(page, page + whole)))
        assert len(known) == best
        page += whole
        kept.append(tokens)


def _common_pages(a, b, size):
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return min(count, len(a) // size * size, len(b) // size * size) // size
