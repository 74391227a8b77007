"""What will be loaded and computed, known from headers alone: before any weight is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anychip.contract.cache import SCALE_BYTES, CacheGroup, CacheSpec, StateGroup, StatePart
from anychip.contract.dtype import DType
from anychip.contract.formats import format_bytes
from anychip.contract.operators import CallSpec
from anychip.contract.registration import Capabilities, Chip
from anychip.model.checkpoint import Checkpoint
from anychip.model.config import ModelConfig
from anychip.model.families import FAMILIES
from anychip.model.layers.attention import table_name
from anychip.model.network import BatchRefs, Network, NetworkInputs
from anychip.model.sources import WeightSource
from anychip.ops.decide import Decision
from anychip.ops.trace import Ops, Program
from anychip.ops.value import CacheRef, Value, WeightRef, given
from anychip.run.sections import FLOAT_INPUTS, MASK, index_shapes
from anychip.run.sizes import Sizes
from anychip.run.weight_plan import ModelPlanError, WeightPlan, plan_weight, quantized_to

Decide = Callable[[CallSpec], Decision]


@dataclass(frozen=True)
class ModelPlan:
    """A model on a chip. group: the cache's layout; its dtype and page size are decided here.

    states: the layers that keep a state; None: there are none. quantized_to: the contract's format
    that linears get at load; None: they keep what the files have.
    """

    config: ModelConfig
    network: Network
    dtype: DType
    group: CacheGroup
    weights: tuple[WeightPlan, ...]
    constants: tuple[WeightSource, ...]
    context_length: int
    states: StateGroup | None = None
    quantized_to: str | None = None

    @property
    def weight_bytes(self) -> int:
        """Device bytes of all weights, constants and rotation tables."""
        packed = sum(w.spec.nbytes for w in self.weights)
        plain = sum(format_bytes(self.constant_dtype(s), s.shape) for s in self.constants)
        tables = sum(rope.rotary_dim for rope in self.config.ropes) * self.context_length
        return packed + plain + DType.FLOAT32.itemsize * tables

    @property
    def matrix_bytes(self) -> dict[str, int]:
        """Device bytes of the weights without constants, by the format that they are held in."""
        found: dict[str, int] = {}
        for weight in self.weights:
            found[weight.spec.format] = found.get(weight.spec.format, 0) + weight.spec.nbytes
        return found

    def constant_dtype(self, source: WeightSource) -> str:
        """The dtype that a constant is held in."""
        return self.dtype.value if source.activation else DType.FLOAT32.value

    @property
    def most_pages(self) -> int:
        """Pages of the longest sequence."""
        return -(-self.context_length // self.group.page_size)


@dataclass(frozen=True)
class ModelWishes:
    """What the user asked for; "auto" and None leave it to the chip and the model."""

    dtype: str = "auto"
    cache_dtype: str = "auto"
    page_size: int | None = None
    context_length: int | None = None
    quantization: str | None = None


def plan_model(checkpoint: Checkpoint, chip: Chip, wishes: ModelWishes) -> ModelPlan:
    """Decide dtypes, page size, context length and weight formats. Raises ModelPlanError."""
    config, facts = checkpoint.config, chip.capabilities()
    target = quantized_to(checkpoint, chip, wishes.quantization)
    offers = facts.activation_dtypes
    wish = wishes.dtype
    if wish == "auto" and config.dtype == DType.FLOAT32.value and DType.FLOAT32 in offers:
        wish = config.dtype  # what was saved in float32 keeps its precision
    dtype = _pick(wish, offers, "--dtype", chip.name)
    cache_wish = wishes.cache_dtype
    if cache_wish == "auto" and dtype in facts.cache_dtypes:
        cache_wish = dtype.value
    cache_dtype = _pick(cache_wish, facts.cache_dtypes, "--kv-cache-dtype", chip.name)
    _check_scaled(cache_dtype, config)
    group = CacheGroup(
        layers=len(config.cached_layers),
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        dtype=cache_dtype,
        page_size=_page_size(wishes.page_size, facts, chip.name),
        layout=facts.cache_layout,
        latent=config.latent.rank if config.latent else 0,
    )
    matrices = [s for s in checkpoint.sources if s.uses is not None]
    return ModelPlan(
        config=config,
        network=FAMILIES[config.architecture].network,
        dtype=dtype,
        group=group,
        weights=tuple(plan_weight(checkpoint, chip, s, dtype, target) for s in matrices),
        constants=tuple(s for s in checkpoint.sources if s.uses is None),
        context_length=_context(wishes.context_length, config),
        states=state_group(config, dtype),
        quantized_to=target,
    )


def state_group(config: ModelConfig, dtype: DType) -> StateGroup | None:
    """What layers of recurrent state keep: the last inputs of the convolution, and the memory of
    the delta rule, in float32 since each token adds to it."""
    delta, layers = config.delta, config.recurrent_layers
    if delta is None or not layers:
        return None
    memory = (delta.value_heads, delta.key_dim, delta.value_dim)
    inputs = (delta.width - 1, 2 * delta.keys + delta.values)
    parts = (StatePart("conv", inputs, dtype), StatePart("memory", memory, DType.FLOAT32))
    return StateGroup(layers, parts)


def _pick(wish: str, offers: tuple[DType, ...], flag: str, chip: str) -> DType:
    if wish == "auto":
        return offers[0]
    if wish not in {d.value for d in offers}:
        there = ", ".join(d.value for d in offers)
        raise ModelPlanError(
            f"{flag} {wish}: chip '{chip}' computes in {there}; choose one of them"
        )
    return DType(wish)


def _check_scaled(dtype: DType, config: ModelConfig) -> None:
    if not dtype.is_scaled:
        return
    why = f"heads have {config.head_dim} elements, a scale lies behind a multiple of {SCALE_BYTES}"
    if config.latent:
        why = "its cache is latent, and latent vectors have no scales"
    elif config.head_dim % SCALE_BYTES == 0:
        return
    raise ModelPlanError(
        f"--kv-cache-dtype {dtype}: not with {config.architecture}: {why}; leave it at auto"
    )


def _page_size(wish: int | None, facts: Capabilities, chip: str) -> int:
    if wish is None:
        return facts.page_sizes[0]
    if wish not in facts.page_sizes:
        there = ", ".join(map(str, sorted(facts.page_sizes)))
        raise ModelPlanError(f"--page-size {wish}: chip '{chip}' has page sizes {there}")
    return wish


def _context(wish: int | None, config: ModelConfig) -> int:
    if wish is not None and wish > config.context_length:
        raise ModelPlanError(
            f"--context-length {wish}: the model was made for {config.context_length} positions; "
            "ask for at most that"
        )
    return wish or config.context_length


def symbols(plan: ModelPlan, sizes: Sizes, pages: int, slots: int = 2) -> NetworkInputs:
    """What the network is traced with. pages, slots: of the whole cache, the sinks included."""
    shapes = index_shapes(sizes, states=plan.states is not None)
    index = {n: given("index", n, s, DType.INT32) for n, s in shapes.items()}
    weights: dict[str, WeightRef | Value] = {
        w.source.name: WeightRef(w.source.name, w.spec) for w in plan.weights
    }
    for source in plan.constants:
        dtype = DType(plan.constant_dtype(source))
        weights[source.name] = given("constant", source.name, source.shape, dtype)
    for i, rope in enumerate(plan.config.ropes):
        table = (plan.context_length, rope.rotary_dim)
        weights[table_name(i)] = given("constant", table_name(i), table, DType.FLOAT32)
    spec = CacheSpec(plan.group, pages)
    caches = {layer: CacheRef(i, spec) for i, layer in enumerate(plan.config.cached_layers)}
    held = plan.states.tensors(slots) if plan.states else {}
    states = {name: given("state", name, s.shape, s.dtype) for name, s in held.items()}
    for name in index.keys() - BatchRefs.__dataclass_fields__.keys():
        del index[name]  # the sampler's
    return NetworkInputs(plan.config, plan.dtype, BatchRefs(**index), weights, caches, states)


def trace_step(
    plan: ModelPlan, sizes: Sizes, pages: int, decide: Decide, *, slots: int = 2
) -> Program:
    """One step as a program; results: logits [R, V] float32 and tokens [R] int32.

    Where their probabilities are told too: logprob [R], rank [R], top_values and top_ids [R, N].
    """
    ops = Ops(decide)
    logits = plan.network(ops, symbols(plan, sizes, pages, slots))
    results = ops.program.results
    results["logits"] = logits
    if sizes.choice.mask_words:
        ops.program.late_from = len(ops.program.nodes)
    tokens = results["tokens"] = _choose(ops, _shape(ops, logits, sizes), sizes)
    if sizes.choice.top >= 0:
        given_ids = given("index", "given", (sizes.samples,), DType.INT32)
        results["logprob"], results["rank"] = ops.token_logprobs(logits, tokens, given_ids)
    if sizes.choice.top > 0:
        found = ops.top_logprobs(logits, n=min(sizes.choice.top, logits.shape[1]))
        results["top_values"], results["top_ids"] = found
    return ops.program


def _shape(ops: Ops, logits: Value, sizes: Sizes) -> Value:
    """The logits that tokens are chosen from."""
    choice, entries = sizes.choice, (sizes.choice.entries,)
    if choice.entries:
        logits = ops.adjust_logits(
            logits,
            given("index", "adjusted_rows", entries, DType.INT32),
            given("index", "adjusted_ids", entries, DType.INT32),
            given("input", "repetition", entries, DType.FLOAT32),
            given("input", "bias", entries, DType.FLOAT32),
        )
    if choice.mask_words:
        shape = (sizes.samples, choice.mask_words)
        logits = ops.mask_logits(logits, given("input", MASK, shape, DType.INT32))
    return logits


def _choose(ops: Ops, logits: Value, sizes: Sizes) -> Value:
    if sizes.choice.greedy:
        tokens: Value = ops.greedy(logits)
        return tokens
    rows = (sizes.samples,)
    floats = {n: given("input", n, rows, DType.FLOAT32) for n in FLOAT_INPUTS}
    drawn: Value = ops.sample(logits, top_k=given("index", "top_k", rows, DType.INT32), **floats)
    return drawn
