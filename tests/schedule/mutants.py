"""Schedulers with one mistake each, made of doubles of a part: what the random lives must notice.

Each is something that an engine did, or that this one could do after a careless change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from anychip.plan import NOT_SAMPLED, PREV
from anychip.request import FinishReason
from anychip.schedule.noise import NoiseStream
from anychip.schedule.pages import PageAllocator
from anychip.schedule.radix import RadixTree
from anychip.schedule.scheduler import Scheduler
from anychip.schedule.state import Produced, State
from anychip.schedule.store import PageStore

Make = Callable[..., Scheduler]


def with_state(kind: type[State]) -> Make:
    """A scheduler whose books are kept by `kind`."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        made._state = kind(limits, options)
        return made

    return make


def with_store(kind: type[PageStore]) -> Make:
    """A scheduler whose pages are kept by `kind`."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        made._state.store = kind(
            limits.pages,
            limits.page_size,
            radix=made._state.store.tree is not None,
            force_miss=options.hooks.force_miss,
            snapshots=made._state.store.snapshots,
        )
        return made

    return make


def with_tree(kind: type[RadixTree]) -> Make:
    """A scheduler whose prefix tree, where it has one, is of `kind`."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        store = made._state.store
        store.tree = kind(limits.page_size, snapshots=store.snapshots) if store.tree else None
        return made

    return make


def with_allocator(kind: type[PageAllocator]) -> Make:
    """A scheduler whose free pages are kept by `kind`."""

    def make(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
        made = Scheduler(limits, eos_ids, options, clock)
        made._state.store.allocator = kind(limits.pages)
        return made

    return make


class FreesTwice(PageAllocator):
    """A page given back goes onto the stack twice, and nobody looks."""

    def give_back(self, pages):
        pages = list(pages)
        super().give_back(pages)
        if len(pages) > 2:
            self._stack.append(pages[0])


class LosesAPage(PageAllocator):
    def give_back(self, pages):
        pages = list(pages)
        super().give_back(pages[:-1] if len(pages) > 2 else pages)


class TellsNoChange(PageStore):
    """Duplicate pages are freed while the device's table still has them (mini-sglang PR 142)."""

    def share(self, sequence):
        told = sequence.dirty_from
        shared = super().share(sequence)
        sequence.dirty_from = told
        return shared


class TakesTheLastToken(PageStore):
    """A prompt that is cached whole leaves nothing to compute."""

    def attach(self, sequence):
        if self.tree is not None and not self._force_miss:
            node, pages = self.tree.match(sequence.request.namespace, sequence.tokens)
            self.tree.lock(node)
            sequence.node, sequence.pages, sequence.shared = node, pages, len(pages)
            sequence.computed = len(pages) * self.page_size
        else:
            super().attach(sequence)


class SharesWhatIsNotWhole(PageStore):
    """The page that is being written goes into the tree as well."""

    def share(self, sequence):
        computed = sequence.computed
        sequence.computed = min(len(sequence.pages) * self.page_size, len(sequence.tokens))
        shared = super().share(sequence)
        sequence.computed = computed
        return shared


class KeepsAFailedStep(Scheduler):
    """What a failed step should have written counts as computed, and is cached."""

    def fail(self, plan, message):
        for sequence, row in zip(self._flights[0].sequences, plan.rows, strict=True):
            if self._state.by_id.get(sequence.request.id) is sequence:
                sequence.computed = row.start + len(row.tokens)
                self._state.store.share(sequence)
        return super().fail(plan, message)


class ForgetsTheLock(RadixTree):
    """What a prefill adds is not held: it may be evicted while it is read."""

    def lock(self, node, *, below=None):
        if below is None:
            super().lock(node)


class UnlocksTooLittle(RadixTree):
    """The ends of long paths stay locked for ever."""

    def unlock(self, node):
        super().unlock(node.parent if node.parent and node.parent.parent else node)


class IgnoresNamespaces(RadixTree):
    def match(self, namespace, tokens):
        return super().match("", tokens)


class FindsHalfAPage(RadixTree):
    """A page counts as found where its first token fits."""

    def _key(self, tokens, start=0):
        return tuple(tokens[start : start + 1])


class LosesOutput(State):
    """A retracted request begins again, its answer too (sglang-jax 1010)."""

    def retract(self, sequence):
        del sequence.tokens[sequence.prompt_length :]
        super().retract(sequence)


class RepeatsNoise(State):
    """After a retraction the noise is drawn from the beginning again."""

    def retract(self, sequence):
        super().retract(sequence)
        sequence.noise = Behind(sequence.request.params.seed, sequence.output_length)


class Behind(NoiseStream):
    def __init__(self, seed: int, by: int) -> None:
        super().__init__(seed, 0)
        self.by = by

    def at(self, position):
        return super().at(position - self.by)


class KeepsTheSlot(State):
    """Who ends leaves its slot taken."""

    def end(self, sequence, finish, **values):
        super().end(sequence, finish, **values)
        if finish is FinishReason.ABORT and self.free_slots:
            self.free_slots.pop()


class AnswersAfterAbort(Scheduler):
    """The last prefill chunk's token goes out although an abort came (sglang 34149)."""

    def _end_aborted(self):
        for sequence in self._state.running():
            if sequence.aborted:
                token = sequence.tokens[-1]
                self._state.end(sequence, FinishReason.ABORT, produced=Produced((token,)))


class RepeatsNoiseAhead(Scheduler):
    """A step planned behind another draws the noise that the other draws."""

    def plan_ahead(self):
        plan = super().plan_ahead()
        if plan is None:
            return None
        pairs = zip(plan.rows, self._flights[-1].sequences, strict=True)
        return replace(plan, rows=tuple(self._behind(row, sequence) for row, sequence in pairs))

    def _behind(self, row, sequence):
        if row.tokens != (PREV,) or not row.temperature:
            return row
        return replace(row, noise=sequence.noise.at(sequence.output_length))


class ForgetsWhatIsAhead(Scheduler):
    """A step that fails gives its pages back, and the one behind it lands as if nothing were."""

    def fail(self, plan, message):
        outputs = super().fail(plan, message)
        self._flights.clear()
        return outputs


class LooksAtNoClock(Scheduler):
    """Whoever waits or runs for too long goes on."""

    def _begin_step(self):
        clock, self._clock = self._clock, lambda: self._state.now
        super()._begin_step()
        self._clock = clock


class TakesNaN(Scheduler):
    """A row without a token gets token 0."""

    def commit(self, plan, result, seconds=None):
        tokens = tuple(
            0 if row.sample and token == NOT_SAMPLED else token
            for row, token in zip(plan.rows, result.tokens, strict=False)
        )
        tokens += result.tokens[len(tokens) :]
        return super().commit(plan, replace(result, tokens=tokens), seconds)


class ForgetsTheQueued(Scheduler):
    """An abort of a waiting request leaves its id behind (sglang PR 24070)."""

    def abort(self, request_id):
        sequence = self._state.by_id.get(request_id)
        done = super().abort(request_id)
        if sequence is not None and sequence.slot < 0 and not sequence.admitted:
            self._state.by_id[request_id] = sequence
        return done


class TakesScoredTokens(PageStore):
    """What is cached is taken, though the logits of a part of it are wanted."""

    def attach(self, sequence):
        wanted, sequence.score_next = sequence.score_next, sequence.prompt_length
        super().attach(sequence)
        sequence.score_next = wanted


class ScoresAgain(State):
    """After a retraction the prompt is scored from the beginning."""

    def retract(self, sequence):
        super().retract(sequence)
        if sequence.request.params.prompt_logprobs >= 0:
            sequence.score_next = sequence.request.params.prompt_logprobs_from


class ForgetsTheShape(State):
    """After a retraction the runner is not told again what shapes the logits."""

    def retract(self, sequence):
        super().retract(sequence)
        sequence.start_due = False


class TellsTheLastChunkAlone(Scheduler):
    """Scores of a prompt's middle chunks are dropped."""

    def _advance(self, sequence, row, index, result):
        if not row.sample:
            result = replace(result, scores={})
        super()._advance(sequence, row, index, result)


class GoesOnBehindTheEnd(Scheduler):
    """What a grammar forces behind an end is told as well."""

    def _append(self, sequence, index, result):
        _, finish = super()._append(sequence, index, result)
        return (result.tokens[index], *result.forced.get(index, ())), finish


class IgnoresWhatIsRuledOut(Scheduler):
    """A request that cannot go on does."""

    def commit(self, plan, result, seconds=None):
        return super().commit(plan, replace(result, errors={}), seconds)


def scores_without_bound(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
    """A step has more logits than there is room for."""
    return Scheduler(replace(limits, logit_rows=10_000), eos_ids, options, clock)


def plans_ahead_of_forced_tokens(limits: Any, eos_ids: Any, options: Any, clock: Any) -> Scheduler:
    """The step behind takes the sampled token for the last one (jump-forward under overlap)."""
    return Scheduler(limits, eos_ids, replace(options, jump_forward=False), clock)


MUTANTS: dict[str, Make] = {
    "a page freed twice": with_allocator(FreesTwice),
    "a page lost": with_allocator(LosesAPage),
    "a changed table entry not told": with_store(TellsNoChange),
    "the last token taken from the cache": with_store(TakesTheLastToken),
    "half a page shared": with_store(SharesWhatIsNotWhole),
    "a failed step's KV cached": KeepsAFailedStep,
    "a lock forgotten": with_tree(ForgetsTheLock),
    "a lock kept": with_tree(UnlocksTooLittle),
    "namespaces ignored": with_tree(IgnoresNamespaces),
    "a page found by its first token": with_tree(FindsHalfAPage),
    "output lost in a retraction": with_state(LosesOutput),
    "noise repeated after a retraction": with_state(RepeatsNoise),
    "a slot lost": with_state(KeepsTheSlot),
    "a token after an abort": AnswersAfterAbort,
    "noise repeated in a step ahead": RepeatsNoiseAhead,
    "the step behind a failed one forgotten": ForgetsWhatIsAhead,
    "a time-out forgotten": LooksAtNoClock,
    "no number taken for token 0": TakesNaN,
    "an aborted id left behind": ForgetsTheQueued,
    "a scored prompt taken from the cache": with_store(TakesScoredTokens),
    "a prompt scored twice": with_state(ScoresAgain),
    "logits not shaped after a retraction": with_state(ForgetsTheShape),
    "scores of a middle chunk dropped": TellsTheLastChunkAlone,
    "forced tokens behind the end": GoesOnBehindTheEnd,
    "a request that cannot go on goes on": IgnoresWhatIsRuledOut,
    "more logits than fit": scores_without_bound,
    "a step ahead of forced tokens": plans_ahead_of_forced_tokens,
}
