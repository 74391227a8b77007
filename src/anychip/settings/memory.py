"""Settings of the KV cache."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared
from anychip.settings.floats import FLOATS, SCALED


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """How much memory the cache has, and what it keeps."""

    mem_fraction_static: float | None = declared(
        None,
        Flag(
            ("--mem-fraction-static",),
            "memory",
            "share of the memory to use [0.85; host memory: half of what is free]",
            "SHARE",
            low=0.01,
            high=1.0,
            differs="guessed from the device's size",
        ),
    )
    max_total_tokens: int | None = declared(
        None, Flag(("--max-total-tokens",), "memory", "tokens in the KV cache [what fits]", low=1)
    )
    page_size: int | None = declared(
        None,
        Flag(
            ("--page-size",),
            "memory",
            "tokens in a page of the KV cache [the chip's]",
            low=1,
            high=65536,
            differs="1",
        ),
    )
    kv_cache_dtype: str = declared(
        "auto",
        Flag(
            ("--kv-cache-dtype",),
            "memory",
            "element type of the KV cache; one of a byte rounds each head vector",
            "TYPE",
            choices=("auto", "float32", "bfloat16", "float16", "int8", "float8_e4m3"),
            spelled={**FLOATS, **SCALED},
        ),
    )
    disable_radix_cache: bool = declared(
        False, Flag(("--disable-radix-cache",), "memory", "no reuse of common prefixes")
    )
    radix_eviction_policy: str = declared(
        "lru",
        Flag(
            ("--radix-eviction-policy",),
            "memory",
            "which cached pages go first",
            "POLICY",
            choices=("lru", "lfu", "slru", "priority"),
        ),
    )
    enable_hierarchical_cache: bool = declared(
        False,
        Flag(
            ("--enable-hierarchical-cache",),
            "memory",
            "evicted pages of the prefix cache are kept in host memory and copied back when found",
        ),
    )
    hicache_ratio: float | None = declared(
        None,
        Flag(
            ("--hicache-ratio",),
            "memory",
            "pages in host memory for each in the KV cache [2.0]",
            "RATIO",
            low=0.01,
        ),
    )
    hicache_size: int = declared(
        0,
        Flag(
            ("--hicache-size",),
            "memory",
            "GB of host memory for evicted pages, instead of a ratio [0: by ratio]",
            "GB",
            low=0,
        ),
    )
