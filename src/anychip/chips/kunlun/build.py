"""Where the vendor's SDK is and what its parts are called, for `sdkbase`'s build layer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anychip.chips.kunlun.memory import CHIP, XRE
from anychip.chips.kunlun.telemetry import XPUML
from anychip.contract.loader import in_folders, load_order
from anychip.sdkbase.build import BuildTerms, SdkBuild
from anychip.sdkbase.form import SdkForm
from anychip.sdkbase.places import folders_below
from anychip.sdkbase.sdk import Sdk, found_sdk
from anychip.sdkbase.table import rows
from anychip.sdkbase.versions import ToldVersion, told_by_calls, told_by_file, told_by_tool

KERNELS = Path(__file__).with_name("kernels")
PLACES = "/usr/local/xpu,/usr/local/xre,~/.cache/anychip/sim/kunlun"
"""Where XRE's installer and a vendor's image put it, the rest beside it; last, the simulator's."""
PARTS = (
    *("sdk", "runtime", "xre", "xhpc", "xhpc/xdnn", "xhpc/xblas", "xhpc/xfa", "xccl", "xft"),
    *("xvllm", "xvllm/infer_ops", "xvllm/xft_blocks"),
)
INCLUDES = ("", "/xre", "/xhpc", "/xhpc/xblas", "/xhpc/xfa", "/xhpc/xpudnn", "/xft", "/xccl")
DATE = r"(?m)^Date:\s*(\S+)"
CALLS = {
    "runtime call": "xpu_get_runtime_version:numbers",
    "driver call": "xpu_get_driver_version:numbers",
    "driver": "xpumlSystemGetDriverVersion:text after xpumlInit",
    "XPUML": "xpumlSystemGetXPUMLVersion:text after xpumlInit",
}
HEADERS = {"xpu/runtime.h": "XRE", "xpu/xpuml.h": "XRE", "xpu/bkcl.h": "XCCL"} | {
    "infer_ops.h": "XVLLM",
    "blocks/core_attention_block.h": "XVLLM",
}
INSTALL = (
    "install XRE, XHPC and XVLLM, then set KUNLUN_SDK_ROOT to the SDK and KUNLUN_RUNTIME_LIB to "
    "the folder of libxpurt.so; without a card: anychip sim build kunlun"
)
WAY_OUT = (
    "take another version of the SDK, or say where the rest of it is: anychip build kunlun "
    "--include-dirs A,B --library-dirs C,D --define NAME=VALUE"
)


def form() -> SdkForm:
    """How the vendor lays the SDK out, and the simulator as the vendor."""
    includes = tuple(f"include{below}" for below in INCLUDES)
    return SdkForm(
        places=PLACES,
        parts=PARTS,
        includes=includes,
        libraries=("lib", "lib64", "so"),
        root_variable="KUNLUN_SDK_ROOT",
        runtime_variable="KUNLUN_RUNTIME_LIB",
        runtime="xpurt",
    )


def terms() -> BuildTerms:
    """The vendor's names and words."""
    return BuildTerms(
        chip=CHIP,
        kernels=KERNELS,
        form=form(),
        package=lambda header: HEADERS.get(header, "XHPC or XVLLM"),
        called=(*XRE.required, *XPUML.interface.required),
        install=INSTALL,
        way_out=WAY_OUT,
    )


def find_sdk(options: Mapping[str, Any]) -> Sdk:
    """As options or their variables say, else in the usual places. Never raises."""
    table = rows(KERNELS / "libraries.tsv")
    return found_sdk(options, form(), [r["library"] for r in table if r["role"] != "others"])


class KunlunBuild(SdkBuild):
    """XRE (its file), XPU-RT (the tool) and the runtime's call, major.minor, are numbered apart;
    BKCL has no call, XCCL is what its file says."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options, find_sdk(options), terms())

    def _version_files(self) -> dict[str, ToldVersion]:
        """Of XHPC its date, as FastDeploy reads it."""
        root, runtime = self.sdk.root, self.sdk.libraries.get("xpurt")
        found = {}
        for package in ("XHPC", "XVLLM", "XCCL"):
            homes = folders_below(root, ("", "sdk"), [package.lower()])
            found[package] = told_by_file(homes, *([DATE] if package == "XHPC" else []))
        date = found["XHPC"]
        found["XHPC"] = ToldVersion(f"dev/{date.version}" if date.version else "", date.whence)
        return found | {"XRE": told_by_file([runtime.parent.parent] if runtime else [])}

    def _versions_called(self) -> dict[str, ToldVersion]:
        there = [self.sdk.libraries[n] for n in ("xpurt", "xpuml") if n in self.sdk.libraries]
        told = told_by_calls(load_order(there, self.sdk.library_dirs), CALLS)
        tool = [self._tool or "xpu_smi", "-q"]
        return {**told, "XPU-RT": told_by_tool(tool, r"XPU-RT Version\s*:\s*(\S+)")}

    @property
    def _tool(self) -> str:
        """The SDK's xpu_smi, else that on the path."""
        root = self.sdk.root
        near = in_folders("xpu_smi", (root / "bin", root.parent / "bin")) if root else None
        return str(near or shutil.which("xpu_smi") or "")
