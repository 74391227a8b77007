"""From a configuration to a model plan, its operators and its memory: what every start does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anychip.config import ServeConfig
from anychip.contract.discovery import load_chip, open_chip
from anychip.contract.operators import OperatorTable
from anychip.contract.registration import Chip
from anychip.contract.remembered import merged
from anychip.model.checkpoint import Checkpoint, open_checkpoint
from anychip.ops.decide import Decider
from anychip.ops.host import host_table
from anychip.ops.record import Recorder
from anychip.ops.trace import Program
from anychip.run.local_model import local_model
from anychip.run.memory_plan import StepLimits, largest_programs
from anychip.run.model_plan import ModelPlan, ModelWishes, plan_model, trace_step
from anychip.run.proved import proved_ids
from anychip.run.sizes import Sizes
from anychip.run.weight_plan import ModelPlanError

DEFAULT_RUNNING = 64
COMPOSED_RUNNING, COMPOSED_CHUNK = 4, 64
UNLIMITED = 1 << 30
MIXING = ("paged_attention", "sink_attention", "latent_attention", "gated_delta_rule")
"""Operators by which tokens see those before them. `expanded_attention` is no other: its recipe
asks for `latent_attention`."""


@dataclass
class Opened:
    """A chip, a checkpoint and what was decided about them; nothing is loaded yet.

    quantization: what is made of linears at load, else how the model was quantized; empty: neither.
    """

    chip: Chip
    checkpoint: Checkpoint
    plan: ModelPlan
    decider: Decider
    limits: StepLimits
    chunk: int
    composed_attention: bool
    quantization: str = ""

    def record(self) -> Recorder:
        """Who serves each operator of the largest prefill and decode, greedy and sampled."""
        return self.recorded()[0]

    def recorded(self) -> tuple[Recorder, list[Program]]:
        """The same, and the programs: good for something where no operator is missing."""
        recorder = Recorder(self.decider)
        return recorder, largest_programs(self.plan, self.limits, recorder)

    def close(self) -> None:
        """Give back the chip and the files."""
        self.checkpoint.close()
        self.chip.close()


def model_path(config: ServeConfig) -> Path:
    """Where the model lies, fetched first where it has to be. Raises ConfigError, DemoError,
    HubError."""
    return Path(str(local_model(config).model_path)).expanduser()


def chip_options(config: ServeConfig) -> dict[str, str]:
    """The user's options: as typed, else, where no variable of the vendor's is set for one, as
    `anychip build` was given it. A chip that declares `build_dir` gets the configured one.

    Raises ContractError, ChipError.
    """
    cls = load_chip(config.backend)
    options = merged(cls, config.chip_option, config.build_path)
    if "build_dir" in {o.name for o in cls.options} and "build_dir" not in options:
        options["build_dir"] = str(config.build_path)
    return options


def open_run(config: ServeConfig) -> Opened:
    """Open the checkpoint, then the chip; decide everything. On failure nothing stays open.

    Raises CheckpointError, ContractError, ChipError, ModelPlanError, UnknownImplementation.
    """
    path = model_path(config)
    _check_load_format(config.load_format, path)
    checkpoint = open_checkpoint(path)
    try:
        chip = open_chip(config.backend, config.device_index, chip_options(config))
    except BaseException:
        checkpoint.close()
        raise
    try:
        return _decide(config, checkpoint, chip)
    except BaseException:
        checkpoint.close()
        chip.close()
        raise


def _check_load_format(wish: str, path: Path) -> None:
    found = "safetensors" if path.is_dir() else "gguf"
    if path.exists() and wish not in ("auto", found):
        raise ModelPlanError(
            f"--load-format {wish}: {path} is {found}; leave the flag out, or pass another path"
        )


def _decide(config: ServeConfig, checkpoint: Checkpoint, chip: Chip) -> Opened:
    wishes = ModelWishes(
        config.dtype,
        config.kv_cache_dtype,
        config.page_size,
        config.context_length,
        config.quantization,
    )
    plan = plan_model(checkpoint, chip, wishes)
    host = host_table() if config.allow_host_ops else OperatorTable()
    proved = proved_ids(config.proved_path, chip)
    decider = Decider(chip.operators, config.op, host, proved=proved)
    composed = attention_is_composed(plan, decider)
    limits, chunk = step_limits(config, plan, chip, composed=composed)
    before = checkpoint.quantized_by if plan.config.dtype == "quantized" else ""
    quantization = config.quantization or before or ""
    return Opened(chip, checkpoint, plan, decider, limits, chunk, composed, quantization)


def attention_is_composed(plan: ModelPlan, decider: Decider) -> bool:
    """Whether the chip leaves attention, or what stands in its place, to its recipe: its calls
    grow with rows and context, or with tokens."""
    recorder = Recorder(decider)
    trace_step(plan, Sizes(tokens=1, rows=1, samples=1, pages=1), 2, recorder)
    return any(s.op in MIXING and s.kind == "composed" for s in recorder.served())


def step_limits(
    config: ServeConfig, plan: ModelPlan, chip: Chip, *, composed: bool
) -> tuple[StepLimits, int]:
    """Rows and tokens of the largest step, and the largest chunk of one prompt.

    composed: attention is; what the user leaves open is then kept small.
    """
    facts = chip.capabilities()
    most = facts.max_tokens or UNLIMITED
    running = config.max_running_requests or (COMPOSED_RUNNING if composed else DEFAULT_RUNNING)
    running = min(running, facts.max_rows or running)
    asked = config.chunked_prefill_size
    if asked == -1:
        whole = max(plan.context_length, config.max_prefill_tokens)
        whole = min(whole, running * plan.context_length, most)
        return StepLimits(running, max(whole, running)), plan.context_length
    chunk = asked or (COMPOSED_CHUNK if composed else facts.step_tokens)
    chunk = min(chunk, config.max_prefill_tokens, most)
    return StepLimits(running, max(chunk, running)), chunk
