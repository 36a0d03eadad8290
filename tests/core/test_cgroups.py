"""CPU and memory limits, read from small trees of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.core import cgroups

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_machine_without_cgroups_has_its_affinity_and_its_memory(tmp_path: Path) -> None:
    root = tree(tmp_path, {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n"})
    assert cgroups.cpu_count(root, affinity=6) == 6
    assert cgroups.cpu_quota(root) is None
    assert cgroups.memory_limit(root) is None
    assert cgroups.memory_bytes(root) == 16 * GIB


def test_v2_quota_and_memory_of_a_container(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "29 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
            "proc/meminfo": "MemTotal: 67108864 kB\n",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/memory.max": str(4 * GIB),
        },
    )
    assert cgroups.cpu_quota(root) == 2.5
    assert cgroups.cpu_count(root, affinity=64) == 2
    assert cgroups.machine_limits(root).memory_bytes == 4 * GIB


def test_tightest_limit_of_nested_v2_groups_counts(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job/step\n",
            base + "user.slice/cpu.max": "max 100000",
            base + "user.slice/job/cpu.max": "300000 100000",
            base + "user.slice/job/memory.max": str(2 * GIB),
            base + "user.slice/job/step/cpu.max": "800000 100000",
            base + "user.slice/job/step/memory.max": "max",
        },
    )
    assert cgroups.cpu_quota(root) == 3.0
    assert cgroups.memory_limit(root) == 2 * GIB


def test_v1_controllers_each_have_their_own_path_and_mount(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpuacct,cpu:/job\n4:memory:/job/a\n0::/ignored\n",
            "proc/self/mountinfo": (
                "32 31 0:29 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"
            ),
            "cg/cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
            "cg/cpu,cpuacct/job/cpu.cfs_period_us": "50000",
            "cg/memory/memory.limit_in_bytes": "9223372036854771712",
            "cg/memory/job/a/memory.limit_in_bytes": str(3 * GIB),
        },
    )
    assert cgroups.cpu_quota(root) == 3.0
    assert cgroups.memory_limit(root) == 3 * GIB


def test_v1_without_quota_is_unlimited(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu:/\n4:memory:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert cgroups.cpu_quota(root) is None
    assert cgroups.memory_limit(root) is None


def test_host_path_that_a_container_cannot_see_falls_back_to_the_mount(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu:/docker/0123abc\n",
            "proc/self/mountinfo": (
                "32 31 0:29 /docker/0123abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
            ),
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroups.cpu_quota(root) == 2.0


@pytest.mark.parametrize(
    ("quota", "cpus"), [("50000 100000", 1), ("100000 100000", 1), ("900000 100000", 4)]
)
def test_cpu_count_is_at_least_one_and_at_most_the_affinity(
    tmp_path: Path, quota: str, cpus: int
) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota})
    assert cgroups.cpu_count(root, affinity=4) == cpus


def test_malformed_files_set_no_limit(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "what\n0::/\n",
            "sys/fs/cgroup/cpu.max": "",
            "sys/fs/cgroup/memory.max": "lots",
        },
    )
    assert cgroups.cpu_quota(root) is None
    assert cgroups.memory_limit(root) is None


def test_this_machine_has_a_cpu_and_memory() -> None:
    here = cgroups.machine_limits()
    assert here.cpus >= 1
    assert here.memory_bytes > 0


def test_available_memory_is_that_of_the_tightest_group_without_its_cache(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/job/"
    files = {
        "proc/self/cgroup": "0::/job/step\n",
        "proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n",
        base + "memory.max": str(4 * GIB),
        base + "memory.current": str(3 * GIB),
        base + "memory.stat": f"anon 1\ninactive_file {GIB // 2}\n",
        base + "step/memory.max": "max",
    }
    root = tree(tmp_path, files)
    assert cgroups.MemoryFiles.of(root).available_bytes() == 3 * GIB // 2
    (root / base / "memory.max").write_text("max")
    assert cgroups.MemoryFiles.of(root).available_bytes() == 8 * GIB


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        (
            {
                "proc/self/cgroup": "0::/job\n",
                "sys/fs/cgroup/job/memory.events": "oom 9\noom_kill 2\n",
                "proc/vmstat": "oom_kill 5\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/job\n",
                "sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 3\n",
            },
            3,
        ),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "nr_free_pages 7\noom_kill 5\n"}, 5),
        ({}, None),
    ],
)
def test_out_of_memory_kills_of_the_group_or_else_of_the_machine(
    tmp_path: Path, files: dict[str, str], kills: int | None
) -> None:
    assert cgroups.MemoryFiles.of(tree(tmp_path, files)).kills() == kills
