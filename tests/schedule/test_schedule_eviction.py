"""Which cached pages go first under each policy: by hand, and against a model of single pages."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_model import Session, ask, limits

from anychip.plan import CacheLimits
from anychip.schedule.eviction import EVICTION_POLICIES as POLICIES
from anychip.schedule.hooks import SchedulerHooks
from anychip.schedule.invariants import violations
from anychip.schedule.options import SchedulerOptions
from anychip.schedule.radix import RadixTree
from anychip.schedule.state import State
from anychip.settings.memory import MemorySettings


def request(tree, tokens, pages, priority=0, namespace=""):
    """What one request does to the tree: find, be counted, add the rest, let go."""
    node, known = tree.match(namespace, tokens)
    tree.lock(node)
    tree.use(node, priority)
    rest = tokens[len(known) * tree.page_size :]
    end, more = tree.insert(node, rest, pages[len(known) :])
    tree.lock(end, below=node)
    tree.use(end, priority, below=node)
    tree.unlock(end)
    return len(known) + len(more)


def order(tree, count):
    return [tree.evict(1)[0] for _ in range(count)]


def one_page_tree(policy, uses, priorities=()):
    """Pages 1, 2 .. under the root, used so many times each, in turn."""
    tree = RadixTree(1, POLICIES[policy])
    for page, times in enumerate(uses, 1):
        for _ in range(times):
            request(tree, [page], [page], priorities[page - 1] if priorities else 0)
    return tree


def test_every_policy_can_be_asked_for_and_every_one_that_can_is_there():
    flag = MemorySettings.__dataclass_fields__["radix_eviction_policy"].metadata["flag"]
    assert tuple(flag.choices) == tuple(POLICIES)


def test_lru_looks_at_the_last_use_alone():
    assert order(one_page_tree("lru", [5, 1, 3]), 3) == [1, 2, 3]


def test_lfu_looks_at_the_number_of_requests_and_then_at_the_last_use():
    assert order(one_page_tree("lfu", [3, 1, 2, 1]), 4) == [2, 4, 3, 1]


def test_lfu_never_forgets():
    """A page much used long ago outlives any number of later pages; lru lets it go."""
    for policy, survives in (("lfu", True), ("lru", False)):
        tree = one_page_tree(policy, [9])
        for page in range(2, 60):
            request(tree, [page], [page])
            request(tree, [page], [page])
            if page > 3:
                tree.evict(1)
        assert (len(tree.match("", [1])[1]) == 1) is survives


def test_slru_protects_what_a_second_request_used_however_often():
    assert order(one_page_tree("slru", [9, 1, 2, 1]), 4) == [2, 4, 1, 3]


def test_priority_lets_the_lowest_go_first_and_then_the_oldest():
    tree = one_page_tree("priority", [1, 1, 1, 1], [5, -3, 0, -3])
    assert order(tree, 4) == [2, 4, 3, 1]


def test_a_node_keeps_the_highest_priority_that_used_it():
    tree = one_page_tree("priority", [1, 1], [-2, -1])
    request(tree, [1], [1], 7)
    request(tree, [1], [1], -9)
    assert order(tree, 2) == [2, 1]


@pytest.mark.parametrize("policy", ["lfu", "slru"])
def test_a_split_leaves_the_count_on_both_halves(policy):
    tree = RadixTree(1, POLICIES[policy])
    for _ in range(3):
        request(tree, [1, 2, 3], [1, 2, 3])
    request(tree, [1, 8], [1, 8])
    request(tree, [9], [9])
    counts = {tuple(node.tokens): node.uses for node in tree.nodes() if node.parent}
    assert counts == {(1,): 4, (2, 3): 3, (8,): 1, (9,): 1}
    assert order(tree, 5) == [8, 9, 3, 2, 1]


def test_a_split_leaves_the_priority_on_both_halves():
    tree = RadixTree(1, POLICIES["priority"])
    request(tree, [1, 2], [1, 2], 5)
    request(tree, [1, 8], [1, 8], -5)
    assert order(tree, 2) == [8, 2]
    request(tree, [9], [9], 3)
    assert order(tree, 2) == [9, 1]


def test_chunks_of_one_request_count_once():
    tree = RadixTree(1, POLICIES["lfu"])
    first, _ = tree.insert(tree.root(""), [1, 2], [1, 2])
    tree.lock(first)
    tree.use(first, 0)
    second, _ = tree.insert(first, [3, 4], [3, 4])
    tree.lock(second, below=first)
    tree.use(second, 0, below=first)
    assert [node.uses for node in tree.nodes()] == [1, 1, 1]


def test_a_request_that_waits_or_comes_back_counts_once():
    """A head that is tried again and again, and one that is retracted, are one request each."""
    session = Session(limits(pages=24), hooks=SchedulerHooks(force_retract_every=3), eviction="lfu")
    for number in range(3):
        session.add(ask(str(number), [1, 2, 3, 4, 5, 6, 7, 8, 9], 24))
    session.drain()
    assert session.scheduler.stats().retractions > 3
    tree = session.scheduler._state.store.tree
    uses = {tuple(node.tokens[:1]): node.uses for node in tree.nodes() if node.parent}
    assert uses[(1,)] == 3


def test_the_policy_reaches_the_cache_of_a_scheduler():
    """Two prompts are cached, the older one used twice: who goes depends on the policy."""
    left = {}
    for policy in POLICIES:
        session = Session(limits(pages=12, page_size=4), eviction=policy)
        for name, first in (("a", 1), ("a2", 1), ("b", 2)):
            session.add(ask(name, [first] * 17, 1))
            session.drain()
        session.add(ask("c", [3] * 25, 1))
        session.drain()
        session.add(ask("again", [1] * 17, 1))
        session.drain()
        left[policy] = session.last["again"].cached_tokens
    assert left == {"lru": 4, "lfu": 16, "slru": 16, "priority": 4}


class PageModel:
    """The tree as one record a page, found by all the tokens before its end; nothing is fast."""

    def __init__(self, policy):
        self.policy = policy
        self.pages = {}
        self.ticks = 0

    def path(self, tokens):
        return [tuple(tokens[:end]) for end in range(1, len(tokens) + 1)]

    def find(self, tokens):
        return list(itertools.takewhile(self.pages.__contains__, self.path(tokens)))

    def touch(self, places):
        self.ticks += 1
        for place in places:
            self.pages[place].last_used = self.ticks

    def request(self, tokens, priority):
        self.touch(self.find(tokens))
        for place in self.path(tokens):
            self.pages.setdefault(place, Record())
        places = self.path(tokens)
        self.touch(places)
        for place in places:
            record = self.pages[place]
            record.priority = max(record.priority, priority)
            record.uses += 1

    def evict(self):
        inner = {place[:-1] for place in self.pages}
        leaves = [p for p in self.pages if p not in inner and not self.pages[p].lock]
        if not leaves:
            return None
        first = min(leaves, key=lambda place: self.policy(self.pages[place]))
        del self.pages[first]
        return first


class Record:
    def __init__(self):
        self.uses = self.last_used = self.lock = 0
        self.priority = -99


TOKENS = st.lists(st.integers(1, 3), min_size=1, max_size=7)
STEPS = st.one_of(
    st.tuples(st.just("request"), TOKENS, st.integers(-2, 2)),
    st.tuples(st.just("look"), TOKENS, st.just(0)),
    st.tuples(st.just("hold"), TOKENS, st.just(0)),
    st.tuples(st.just("evict"), st.just([]), st.integers(1, 4)),
)


class Both:
    """The tree and the model under the same steps; a page's id stands for its place."""

    def __init__(self, policy):
        self.tree, self.model = RadixTree(1, POLICIES[policy]), PageModel(POLICIES[policy])
        self.ids = itertools.count()
        self.place = {}
        self.held = []

    def step(self, kind, tokens, number):
        if kind == "request":
            pages = [next(self.ids) for _ in tokens]
            known = request(self.tree, tokens, pages, number)
            paths = self.model.path(tokens)
            assert known == len(self.model.find(tokens))
            self.place.update(zip(pages[known:], paths[known:], strict=True))
            self.model.request(tokens, number)
        elif kind == "look":
            self.tree.match("", tokens)
            self.model.touch(self.model.find(tokens))
        elif kind == "hold":
            self.hold_or_let_go(tokens)
        else:
            self.evict(number)

    def hold_or_let_go(self, tokens):
        if len(self.held) > 1:
            node, places = self.held.pop(0)
            self.tree.unlock(node)
            change = -1
        else:
            node, pages = self.tree.match("", tokens)
            self.tree.lock(node)
            places, change = self.model.find(tokens), 1
            assert [self.place[page] for page in pages] == places
            self.held.append((node, places))
        self.model.touch(places)
        for place in places:
            self.model.pages[place].lock += change

    def evict(self, count):
        expected = [self.model.evict() for _ in range(count)]
        found = [self.place[page] for page in self.tree.evict(count)]
        assert sorted(found) == sorted(place for place in expected if place)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(policy=st.sampled_from(list(POLICIES)), steps=st.lists(STEPS, max_size=50))
def test_any_order_of_events_evicts_what_the_model_evicts(policy, steps):
    both = Both(policy)
    for kind, tokens, number in steps:
        both.step(kind, tokens, number)
        assert_sound(both.tree)
    for node, _ in both.held:
        both.tree.unlock(node)
    assert sorted(both.place[page] for page in both.tree.clear()) == sorted(both.model.pages)
    assert both.tree.leaves.entries() == []


def assert_sound(tree):
    """The sentences of `violations` that are about the tree and not about requests."""
    room = CacheLimits(
        pages=1, page_size=1, context_length=8, max_running=1, step_tokens=1, chunk=1
    )
    state = State(room, SchedulerOptions())
    state.store.tree = tree
    about = ("heap", "evict", "a node", "a child", "the tree has")
    found = [s for s in violations(state) if any(word in s for word in about)]
    assert found == []


@pytest.mark.parametrize("policy", POLICIES)
def test_the_heap_does_not_grow_with_use(policy):
    tree = one_page_tree(policy, [1, 1])
    for _ in range(500):
        request(tree, [1], [1])
    assert len(tree.leaves.entries()) == 2


def test_check_finds_a_heap_that_is_wrong():
    session = Session(limits(), eviction="lfu")
    session.add(ask("a", [1] * 20, 2))
    session.drain()
    tree = session.scheduler._state.store.tree
    leaf = next(node for node in tree.nodes() if node.is_evictable_leaf)
    leaf.uses = -1
    assert any("later than the policy says" in s for s in session.scheduler.check())
    tree.leaves.forget(lambda node: True)
    assert any("would never be evicted" in s for s in session.scheduler.check())
