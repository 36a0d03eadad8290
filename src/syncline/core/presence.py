"""Whether a cluster runs on this machine; found without loading Ray."""

from __future__ import annotations

import importlib.util

import psutil

NODE_PROCESS = "raylet"
"""What every node of a cluster runs."""


def cluster_runs_here() -> bool:
    """Whether a node of some cluster runs on this machine, and Ray is installed to connect with.
    Costs milliseconds.
    """
    if importlib.util.find_spec("ray") is None:
        return False
    return any(process.info["name"] == NODE_PROCESS for process in psutil.process_iter(["name"]))
