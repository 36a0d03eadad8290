"""`srun syncline run`: nodes, node rank and address from Slurm's variables.

One task per node starts the launcher, which starts the workers of the node. Options and `PET_`
variables win over Slurm's. Not covered: one task per worker, which needs no launcher.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

FIRST_PORT = 20_000
PORTS = 10_000
"""Ports from which a job's is chosen by its id."""
_GROUP = re.compile(r"([^,\[]+)(?:\[([^\]]+)\])?")


def complete(options: argparse.Namespace, variables: Mapping[str, str]) -> None:
    """Set the options of nodes from the variables of a job step with several nodes.

    Raises:
        ValueError: The step has several tasks per node.
    """
    nodes = _number(variables, "SLURM_STEP_NUM_NODES") or _number(variables, "SLURM_NNODES") or 1
    is_given = (
        options.nnodes != "1:1"
        or options.standalone
        or options.rdzv_endpoint
        or options.rdzv_backend != "static"
        or options.master_port is not None
    )
    if "SLURM_STEP_ID" not in variables or nodes < 2 or is_given:
        return
    tasks = _number(variables, "SLURM_STEP_NUM_TASKS") or _number(variables, "SLURM_NTASKS")
    if tasks is not None and tasks != nodes:
        raise ValueError(
            f"Slurm starts {tasks} tasks on {nodes} nodes, but `syncline run` starts the workers "
            "of a node itself: pass `--ntasks-per-node=1` to srun, and the workers per node as -n"
        )
    options.nnodes = str(nodes)
    options.node_rank = _number(variables, "SLURM_NODEID") or 0
    names = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST", "")
    options.master_addr = first_host(names) or options.master_addr
    job = _number(variables, "SLURM_JOB_ID") or 0
    step = _number(variables, "SLURM_STEP_ID") or 0
    options.master_port = FIRST_PORT + (job * 31 + step) % PORTS
    if options.rdzv_id == "none":
        options.rdzv_id = f"{job}.{step}"


def first_host(names: str) -> str:
    """Return the first host of a list such as `node[03-07,9],login1`."""
    found = _GROUP.match(names.strip())
    if found is None:
        return ""
    prefix, numbers = found.groups()
    suffix = re.match(r"[^,]*", names[found.end() :])
    first = re.split("[-,]", numbers)[0] if numbers else ""
    return prefix + first + (suffix[0] if numbers and suffix else "")


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    return int(text) if text.isdecimal() else None
