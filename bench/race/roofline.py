"""How much work a token and a prompt are, from the model's sizes, and what share of the machine's
measured rates an engine reached."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from race.figures import Results

CACHE_BYTES = 2
"""Bytes of an element of the cache of keys and values: every engine holds 16-bit floats."""


@dataclass(frozen=True)
class Work:
    """A model in one file. weight_bytes: read for a token. cache_bytes: of a cached position.

    linear, head: FLOP of a token in the layers' matrices, and in the head. attention: FLOP of a
    token for each position that it attends to. int8: whether the layers' matrices are int8 by int8.
    """

    weight_bytes: int
    cache_bytes: int
    linear: int
    head: int
    attention: int
    int8: bool = False

    @property
    def linear_flops(self) -> int:
        """FLOP of floats that take as long as `linear`: a processor with dot products of bytes
        makes them at twice the rate of bfloat16's."""
        return self.linear // 2 if self.int8 else self.linear

    def decode_bytes(self, context: float) -> float:
        """Bytes that one token of one stream reads: the weights, and `context` positions."""
        return self.weight_bytes + context * self.cache_bytes

    def prefill_flops(self, length: int) -> int:
        """Multiplications and additions of a prompt whose last token alone meets the head; each
        position attends to those up to itself. int8 counts half."""
        pairs = length * (length + 1) // 2
        return length * self.linear_flops + self.head + pairs * self.attention


def work_of(path: Path, quantization: str | None = None) -> Work:
    """quantization: made of plain linears at load, a name of `--quantization`. Raises
    CheckpointError."""
    from anychip.contract.formats import PLAIN_FORMATS, W8A8, format_bytes
    from anychip.contract.weights import WeightUse
    from anychip.model.checkpoint import open_checkpoint
    from anychip.run.weight_plan import AT_LOAD, is_multiplied

    target = AT_LOAD.get(quantization or "")
    checkpoint = open_checkpoint(path)
    try:
        config = checkpoint.config
        # A table of embeddings that is nothing else gives one row a token.
        read = [s for s in checkpoint.sources if s.uses and s.uses != {WeightUse.EMBEDDING}]
        parts, layers = [], set()
        for source in read:
            for format, shape in map(checkpoint.describe, source.parts):
                made = target if target and is_multiplied(source) else None
                held = made if made and format in PLAIN_FORMATS else format
                parts.append((held, shape))
                layers |= {held} if is_multiplied(source) else set()
    finally:
        checkpoint.close()
    width = config.heads * config.head_dim
    key_value = 2 * config.kv_heads * config.head_dim
    layer = config.hidden_size * (2 * width + key_value + 3 * config.intermediate_size)
    head = config.vocab_size * config.hidden_size
    return Work(
        weight_bytes=sum(format_bytes(*part) for part in parts),
        cache_bytes=CACHE_BYTES * config.layers * key_value,
        linear=2 * config.layers * layer,
        head=2 * head,
        attention=4 * config.layers * width,
        int8=layers <= set(W8A8),
    )


@dataclass(frozen=True)
class Share:
    """What an engine reached of a limit, the median of the repeats: both in the same unit."""

    engine: str
    what: str
    reached: float
    limit: float
    unit: str


def shares(results: Results) -> Iterator[Share]:
    """W1's decode against the rate of memory, W4's prefill against the rate of products."""
    models = {str(line["engine"]): line for line in results.kind("model")}
    for engine, model in models.items():
        decode = results.spread(engine, "W1", "decode_rate")
        reads = _median(results, "read_gb_s", str(_number(model, "step_bytes")))
        if decode and reads:
            rate = decode.median * _number(model, "step_bytes") / 1e9
            yield Share(engine, "W1 decode", rate, reads, "GB/s")
        first = results.spread(engine, "W4", "first_mean_ms")
        products = _median(results, "product_gflops", "bfloat16")
        if first and products:
            rate = _number(model, "long_flops") / (first.median / 1000) / 1e9
            yield Share(engine, "W4 prefill", rate, products, "GFLOP/s")


def _number(line: Mapping[str, object], key: str) -> int:
    value = line[key]
    if not isinstance(value, int):
        raise TypeError(f"{key} is {value!r}")
    return value


def _median(results: Results, key: str, which: str) -> float | None:
    found = []
    for line in results.kind("machine"):
        rates = line[key]
        if isinstance(rates, Mapping) and which in rates:
            found.append(float(rates[which]))
    return statistics.median(found) if found else None
