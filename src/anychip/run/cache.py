"""Cache memory: each layer's keys and values, or its recurrent state, allocated once."""

from __future__ import annotations

from anychip.contract.cache import CacheGroup, CacheSpec, CacheView, StateGroup, latent_view
from anychip.contract.memory import Memory
from anychip.contract.tensor import Tensor


def allocate_cache(memory: Memory, group: CacheGroup, pages: int) -> tuple[CacheView, ...]:
    """One buffer a layer and half, so that no single large block is needed; keys alone where the
    cache is latent.

    pages: the sink page included. On failure nothing stays allocated.
    """
    spec = CacheSpec(group, pages)
    halves: list[Tensor] = []
    nbytes = pages * group.layer_page_bytes
    try:
        for _ in range(group.halves * group.layers):
            buffer = memory.allocate(nbytes)
            halves.append(Tensor(spec.held_shape, group.dtype, spec.strides, buffer=buffer))
    except BaseException:
        _free(memory, halves)
        raise
    if group.latent:
        return tuple(latent_view(spec, k) for k in halves)
    pairs = zip(halves[::2], halves[1::2], strict=True)
    return tuple(CacheView(spec, k, v) for k, v in pairs)


def free_cache(memory: Memory, caches: tuple[CacheView, ...]) -> None:
    """Give every layer back."""
    _free(memory, [half for cache in caches for half in cache.halves])


def _free(memory: Memory, halves: list[Tensor]) -> None:
    for half in halves:
        memory.free(half.buffer)


def allocate_states(memory: Memory, group: StateGroup | None, slots: int) -> dict[str, Tensor]:
    """Every tensor of recurrent state by name, none for None; what is in it is never read.

    slots: the sink included. On failure nothing stays allocated.
    """
    held: dict[str, Tensor] = {}
    try:
        for name, spec in group.tensors(slots).items() if group else ():
            held[name] = Tensor(spec.shape, spec.dtype, buffer=memory.allocate(spec.nbytes))
    except BaseException:
        free_states(memory, held)
        raise
    return held


def free_states(memory: Memory, states: dict[str, Tensor]) -> None:
    """Give every tensor back."""
    _free(memory, list(states.values()))
