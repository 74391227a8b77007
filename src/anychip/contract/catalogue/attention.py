"""Cache and attention. B sequences, M pages a row of the page table, S page size.

Slot s of a cache is offset s % S of page s // S. Page 0 is a sink: padding writes there. A batch
is ragged: tokens of sequence b are cu_q[b] .. cu_q[b + 1]. kv_lens counts this step's tokens.
"""

from __future__ import annotations

from anychip.contract.signature import Arg, ArgKind, Attr, Layout, Signature, Tier

CACHE = Arg("cache", "C", "P,S,G,D", ArgKind.CACHE)
BATCH = (
    Arg("page_table", "int32", "B,M", ArgKind.INDEX),
    Arg("cu_q", "int32", "Q", ArgKind.INDEX),
    Arg("kv_lens", "int32", "B", ArgKind.INDEX),
    Arg("positions", "int32", "T", ArgKind.INDEX),
    Arg("token_rows", "int32", "T", ArgKind.INDEX),
)
ATTENTION_ATTRS = (
    Attr("scale", "float"),
    Attr("causal", "bool", True),
    Attr("window", "int", 0),
    Attr("softcap", "float", 0.0),
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "kv_write",
        Tier.REQUIRED,
        (
            CACHE,
            Arg("k", "X", "T,G,D", layout=Layout.ROWS),
            Arg("v", "X", "T,G,D", layout=Layout.ROWS),
            Arg("slots", "int32", "T", ArgKind.INDEX),
        ),
        (),
        "Write each token's key and value at its slot, rounded to the cache's dtype; -1 skips.",
        writes=("cache",),
    ),
    Signature(
        "kv_copy_pages",
        Tier.COMPOSED,
        (
            CACHE,
            Arg("sources", "int32", "N", ArgKind.INDEX),
            Arg("targets", "int32", "N", ArgKind.INDEX),
        ),
        (),
        "Page targets[i] becomes a copy of page sources[i]; no page is in both lists.",
        writes=("cache",),
    ),
    Signature(
        "paged_attention",
        Tier.REQUIRED,
        (Arg("q", "X", "T,H,D", layout=Layout.ROWS), CACHE, *BATCH),
        (Arg("y", "X", "T,H,D"),),
        "Attention of a ragged batch over the cache, prefill and decode alike. Token t of row "
        "b = token_rows[t] sees cache positions j < kv_lens[b], with causal j <= positions[t], "
        "with window w > 0 also j > positions[t] - w (a window counts the token itself). Scores "
        "are q.k * scale, softcap c > 0: c * tanh(s / c); softmax in float32. A token that sees "
        "nothing gives zeros. Query head h reads KV head h // (H / G).",
        ATTENTION_ATTRS,
    ),
)
