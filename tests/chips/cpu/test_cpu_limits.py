"""Cores and memory of a process in cgroups: version 2, version 1, both, and inside a container."""

from __future__ import annotations

import os

import pytest

from anychip.chips.cpu.registration_cores import usable_cores
from anychip.contract.host import host_facts

MIB = 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A /proc and a /sys of a machine with 8 cores and 64 MiB."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    write(tmp_path, "proc/meminfo", "MemTotal: 65536 kB\nMemAvailable: 32768 kB\n")
    return tmp_path


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_cgroup_the_affinity_counts(system, monkeypatch):
    assert usable_cores(system).count == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3}, raising=False)
    found = usable_cores(system)
    assert (found.count, found.source) == (1, "affinity of the process")
    assert host_facts(system).total == 64 * MIB


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("900000 100000", 8)],
)
def test_a_quota_of_version_2_is_rounded_up(system, quota, cores):
    write(system, "proc/self/cgroup", "0::/\n")
    write(system, "sys/fs/cgroup/cpu.max", f"{quota}\n")
    assert usable_cores(system).count == cores


def test_the_tightest_quota_above_a_process_counts(system):
    write(system, "proc/self/cgroup", "0::/pod/box\n")
    write(system, "sys/fs/cgroup/pod/box/cpu.max", "max 100000\n")
    write(system, "sys/fs/cgroup/pod/cpu.max", "250000 100000\n")
    found = usable_cores(system)
    assert found.count == 3
    assert found.source == f"CPU quota of 2.5 in {system}/sys/fs/cgroup/pod"


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct", "cpuacct,cpu"])
def test_a_quota_of_version_1(system, controllers):
    write(system, "proc/self/cgroup", f"3:cpuset:/\n4:{controllers}:/box\n")
    folder = f"sys/fs/cgroup/{controllers}/box"
    write(system, f"{folder}/cpu.cfs_period_us", "100000\n")
    write(system, f"{folder}/cpu.cfs_quota_us", "-1\n")
    assert usable_cores(system).count == 8
    write(system, f"{folder}/cpu.cfs_quota_us", "150000\n")
    assert usable_cores(system).count == 2


def test_a_container_sees_its_own_cgroup_as_the_root(system):
    """The path is the host's, and nothing lies there."""
    write(system, "proc/self/cgroup", "4:cpu:/docker/1f2e\n5:memory:/docker/1f2e\n")
    write(system, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    write(system, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n")
    write(system, "sys/fs/cgroup/memory/memory.limit_in_bytes", f"{16 * MIB}\n")
    write(system, "sys/fs/cgroup/memory/memory.usage_in_bytes", f"{4 * MIB}\n")
    assert usable_cores(system).count == 1
    facts = host_facts(system)
    assert (facts.total, facts.available) == (16 * MIB, 12 * MIB)


def test_the_tightest_memory_limit_counts_and_file_cache_is_free(system):
    write(system, "proc/self/cgroup", "0::/pod/box\n")
    for folder, limit, used in (("pod/box", "max", 0), ("pod", 24 * MIB, 20 * MIB)):
        write(system, f"sys/fs/cgroup/{folder}/memory.max", f"{limit}\n")
        write(system, f"sys/fs/cgroup/{folder}/memory.current", f"{used}\n")
    write(system, "sys/fs/cgroup/pod/memory.stat", f"anon 5\ninactive_file {8 * MIB}\n")
    facts = host_facts(system)
    assert (facts.total, facts.available) == (24 * MIB, 12 * MIB)
    assert facts.source == f"memory limit of {system}/sys/fs/cgroup/pod"
