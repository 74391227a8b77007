"""The board file of a tree: what the simulated driver knows of its cards, before any is used."""

from __future__ import annotations

from pathlib import Path

from anychip_sim_kunlun.compiler import run
from anychip_sim_kunlun.order import TreeOrder

MIB = 1 << 20
BUSES = (
    *(0x03, 0x05, 0x16, 0x18, 0x52, 0x55, 0x63, 0x66),
    *(0x83, 0x85, 0x9A, 0x9B, 0xA3, 0xA5, 0xAA, 0xAB),
)
"""PCI buses on which field logs show cards."""


def write_board(tree: Path, order: TreeOrder, with_driver: bool) -> None:
    """state/board, by the tree's own libexec/make_board. Without a driver there is none."""
    state = tree / "state"
    state.mkdir()
    if with_driver:
        pairs = {**_of_all_cards(order), **_of_each_card(order.devices)}
        words = [f"{key}={value}" for key, value in pairs.items()]
        run([str(tree / "libexec" / "make_board"), str(state / "board"), *words])


def _of_all_cards(order: TreeOrder) -> dict[str, object]:
    card = order.profile
    versions = {"profile": card.name, "driver": order.driver, "runtime": order.runtime}
    sizes = {
        "capacity": order.memory_mib * MIB,
        "page": card.page,
        "block": card.block_mib * MIB,
        "l3_capacity": card.l3_mib * MIB,
        "l3_page": card.l3_page,
    }
    units = {
        "clusters": card.clusters,
        "sdnn": card.sdnns,
        "copy_engines": card.copy_engines,
        "hardware_queues": card.hardware_queues,
        "encoders": card.encoders,
        "decoders": card.decoders,
        "image_units": card.image_units,
    }
    climate = {
        "idle_celsius": card.idle_c,
        "busy_celsius": card.busy_c,
        "idle_milliwatts": card.idle_w * 1000,
        "busy_milliwatts": card.cap_w * 1000,
        "clock_mhz": card.clock_mhz,
        "memory_clock_mhz": card.memory_clock_mhz,
    }
    identity = {
        "model_name": card.model,
        "firmware": card.firmware,
        "pci_device": card.device_id,
        "model": card.model_id,
        "board_id": 0,
        "onboard_id": 0,
    }
    return {**versions, **sizes, **units, **climate, **identity}


def _of_each_card(devices: int) -> dict[str, str]:
    """The number of the device file is not the index: a field log has card 1 at /dev/xpu2."""
    cards = range(devices)
    return {
        "pci": ",".join(f"0000:{BUSES[i]:02x}:00.0" for i in cards),
        "serial": ",".join(f"SIM{i:012d}" for i in cards),
        "minor": ",".join(str(i + (i > 0)) for i in cards),
    }
