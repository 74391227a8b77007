"""The simulated cards as data. Every number has its source beside it; guesses are marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """One kind of card and the software that it was seen with.

    memory_mib, l3_mib: capacities. page, l3_page: bytes to which allocations are rounded up.
    block_mib: a plain allocation may not cross a multiple of this; 0: no such rule. idle_*, busy_c,
    cap_w: climate without load and at full load. driver: the kernel driver. xpu_rt: what xpu_smi
    calls XPU-RT. runtime_abi: the number in the runtime's soname. components: version of each part
    of the SDK, as its own version file has it.
    """

    name: str
    model: str
    device_id: int
    model_id: int
    memory_mib: int
    page: int
    block_mib: int
    l3_mib: int
    l3_page: int
    clusters: int
    sdnns: int
    copy_engines: int
    hardware_queues: int
    encoders: int
    decoders: int
    image_units: int
    clock_mhz: int
    memory_clock_mhz: int
    idle_c: int
    busy_c: int
    idle_w: int
    cap_w: int
    firmware: str
    driver: str
    xpu_rt: str
    runtime_abi: int
    components: Mapping[str, str]


P800 = Profile(
    name="p800",
    model="P800 OAM",  # xpu_smi -m, field logs: xyDong0223/infer-forge-harness
    device_id=0x3688,  # the OAM card; a field log of a PCIe card says 0x3686
    model_id=300,  # DeviceModel KL3 of the public 4.33 defs.h; newer ones may differ: a guess
    memory_mib=98304,  # xpu_smi
    page=131072,  # field notes: "page rounding"
    block_mib=0,
    l3_mib=96,  # xpu_smi
    l3_page=131072,  # a guess
    clusters=12,  # field notes: .ncl=12, multi_processor_count=12
    sdnns=12,  # a guess
    copy_engines=4,  # a guess
    hardware_queues=16,  # a guess
    encoders=0,  # a guess, as are the next two
    decoders=0,
    image_units=0,
    clock_mhz=1450,  # xpu_smi -m, columns 9 to 14
    memory_clock_mhz=1450,  # a guess: that one of these six is the memory's
    idle_c=36,  # xpu_smi -m, column 4
    busy_c=65,  # a guess
    idle_w=86,  # xpu_smi -m, column 8
    cap_w=400,  # xpu_smi, "86W / 400W"
    firmware="1.0:2.6:1.39.1.7",  # xpu_smi -m, column 20
    driver="5.0.21.21",  # field log: head of xpu_smi
    xpu_rt="5.2.0",  # the same line
    runtime_abi=2,  # libxpurt.so.2 with XRE 5: Paddle cmake/external/xpu.cmake, FlagCX scripts
    components={
        "XRE": "5.0.21.19",  # Paddle cmake/external/xpu.cmake, WITH_XPU_XRE5
        "XHPC": "dev/20250417",
        "XVLLM": "20251017",  # FastDeploy custom_ops/xpu_ops/download_dependencies.sh, stable
        "XCCL": "3.0.2.5",
    },
)

R200 = Profile(
    name="r200",
    model="R200",  # xpu_device_model_str of the public 4.33 defs.h
    device_id=0x3684,  # kl_pci_id_tbl of the public driver
    model_id=2,  # DeviceModel R200
    memory_mib=16384,  # product page: 16 GB GDDR6
    page=131072,  # a guess: as on P800
    block_mib=4096,  # a guess from the public driver: plain allocations stay in a 4 GiB block
    l3_mib=64,  # a guess
    l3_page=131072,  # a guess
    clusters=8,  # a guess
    sdnns=6,  # a guess
    copy_engines=4,  # a guess
    hardware_queues=16,  # a guess
    encoders=1,  # a guess, as are the next two
    decoders=1,
    image_units=1,
    clock_mhz=1300,  # a guess
    memory_clock_mhz=1300,  # a guess
    idle_c=40,  # a guess
    busy_c=75,  # a guess
    idle_w=40,  # a guess
    cap_w=150,  # product page
    firmware="0.0:0.0:0.0.0.0",  # a guess
    driver="4.32.0.1",  # a guess: that of its XRE
    xpu_rt="4.32.0",  # a guess: the first three numbers of XRE
    runtime_abi=1,  # libxpurt.so.1 before XRE 5: Paddle cmake/external/xpu.cmake
    components={
        "XRE": "4.32.0.1",  # Paddle cmake/external/xpu.cmake, without WITH_XPU_XRE5
        "XHPC": "dev/20250417",
        "XCCL": "2.0.0.1",
    },
)

PROFILES: Mapping[str, Profile] = {p.name: p for p in (P800, R200)}

MOST_DEVICES = 16
"""How many cards the shared accounting has room for."""
