"""Cache memory: each layer's keys and values, allocated once; of a latent cache keys alone."""

from __future__ import annotations

from anychip.contract.cache import CacheGroup, CacheSpec, CacheView, latent_view
from anychip.contract.memory import Memory
from anychip.contract.tensor import Tensor


def allocate_cache(memory: Memory, group: CacheGroup, pages: int) -> tuple[CacheView, ...]:
    """One buffer a layer and half, so that no single large block is needed.

    pages: the sink page included. On failure nothing stays allocated.
    """
    spec = CacheSpec(group, pages)
    halves: list[Tensor] = []
    nbytes = pages * group.layer_page_bytes
    try:
        for _ in range(group.halves * group.layers):
            buffer = memory.allocate(nbytes)
            halves.append(Tensor(spec.shape, group.dtype, spec.strides, buffer=buffer))
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
