"""Facts for the interpretation of the values: the machine, its limits, and the versions."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

_VERSIONS = """
import importlib.metadata, json, platform, sys
versions = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(" ".join(f"{name}={version}" for name, version in versions.items()))
"""


def versions(python: str) -> dict[str, str]:
    """Return the versions of an interpreter and of the relevant packages that it has."""
    command = [
        python,
        "-c",
        _VERSIONS,
        "syncline",
        "torch",
        "numpy",
        "pyarrow",
        "pandas",
        "simplejpeg",
        "daft",
        "optuna",
        "ray",
        "litserve",
        "bentoml",
        "uvicorn",
        "uvloop",
    ]
    output = subprocess.run(
        command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=True
    ).stdout
    return dict(pair.split("=", 1) for pair in output.split())


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()


def facts(ray_python: str | None) -> dict[str, object]:
    """Return CPU, memory in bytes, kernel, load and versions, as JSON values."""
    shared = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "shared_memory_bytes": shared.f_blocks * shared.f_frsize if shared else 0,
        "kernel": platform.release(),
        "load_average": list(os.getloadavg()),
        "versions": versions(sys.executable),
        "versions_with_ray": versions(ray_python) if ray_python else None,
    }
