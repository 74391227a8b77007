"""Settings of the KV cache."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared
from anychip.settings.floats import FLOATS


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
            "element type of the KV cache",
            "TYPE",
            choices=("auto", "float32", "bfloat16", "float16"),
            spelled=FLOATS,
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
