"""Settings of the chip, and of the checks of what it computes."""

from __future__ import annotations

import dataclasses

from anychip.flags import Flag, declared


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChipSettings:
    """On which chip, by which operators, checked or not."""

    backend: str = declared(
        "cpu",
        Flag(("--backend",), "chip", "chip to run on, see `anychip chips`", "CHIP"),
    )
    device_index: int = declared(
        0,
        Flag(("--device-index", "--base-gpu-id"), "chip", "which device of the chip", low=0),
    )
    chip_option: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(("--chip-option",), "chip", "option of the chip, repeatable", "NAME=VALUE")
        },
    )
    op: dict[str, str] = dataclasses.field(
        default_factory=dict,
        metadata={
            "flag": Flag(
                ("--op",), "chip", "implementation of an operator, repeatable", "NAME=IMPL"
            )
        },
    )
    allow_host_ops: bool = declared(
        False,
        Flag(("--allow-host-ops",), "chip", "operators that the chip lacks run on the host"),
    )
    tp_size: int = declared(
        1,
        Flag(
            ("--tp-size", "--tensor-parallel-size", "--tp"),
            "chip",
            "devices that share the model; only 1 for now",
            low=1,
            high=1,
            way_out="tensor parallelism is not there yet: use 1, or one server a device",
        ),
    )
    check_ops: bool = declared(
        False,
        Flag(
            ("--check-ops",), "checks", "compare every operator of every step with the oracle: slow"
        ),
    )
    check_ops_dir: str | None = declared(
        None,
        Flag(
            ("--check-ops-dir",),
            "checks",
            "folder for operator calls that diverge [CACHE_DIR/divergences]",
            "DIR",
        ),
    )
