"""Compatibility of a program with its cluster: versions, and shared class tables of cloudpickle.

The versions of Ray, Python and syncline must match.
"""

from __future__ import annotations

import base64
import json
import platform
import sys
from collections.abc import Mapping

import cloudpickle.cloudpickle as own_cloudpickle
import ray
import ray.cloudpickle.cloudpickle as ray_cloudpickle

from syncline.core.program_state import ProgramReceiver, ProgramWatch

SYNCLINE_VERSION: str = sys.modules["syncline"].__version__
"""Version of this process; read from the package, which no module of it imports."""
SYNCLINE_KEY = "syncline_version"
"""Key of the program's syncline version in the job metadata on the cluster."""
PROGRAM_KEY = "syncline_program"
"""Key of the program's state (`core.program_state`), as base64."""

_CLASS_TABLES = (
    "_DYNAMIC_CLASS_TRACKER_BY_CLASS",
    "_DYNAMIC_CLASS_TRACKER_BY_ID",
    "_PICKLE_BY_VALUE_MODULES",
)


def check_cluster(address: str, metadata: bytes) -> None:
    """Raise RuntimeError if the cluster's versions, in its `metadata`, do not match."""
    told = json.loads(metadata)
    its_ray, its_python = told["ray_version"], told["python_version"]
    python = platform.python_version()
    minor = its_python.rpartition(".")[0]  # the patch version does not matter
    if (its_ray, minor) != (ray.__version__, python.rpartition(".")[0]):
        raise RuntimeError(
            f"the cluster at {address!r} runs Ray {its_ray} on Python {its_python}, this program "
            f"Ray {ray.__version__} on Python {python}, so they cannot exchange code and values. "
            f"Run the program with Python {minor} and `pip install ray=={its_ray}`, or start the "
            f"cluster with this program's versions."
        )


def check_program(metadata: Mapping[str, str], node: str) -> None:
    """In a worker: raise RuntimeError if the program's version of syncline differs.

    `metadata` is the program's job metadata.
    """
    program = metadata.get(SYNCLINE_KEY, SYNCLINE_VERSION)
    if program != SYNCLINE_VERSION:
        raise RuntimeError(
            f"the program runs syncline {program}, but the node {node} has syncline "
            f"{SYNCLINE_VERSION}, so they cannot work together. Install the same version on both, "
            f"such as with `pip install syncline=={program}` on every node."
        )


def job_metadata() -> dict[str, str]:
    """Return the metadata that the cluster stores for this program."""
    state = ProgramWatch().changed()
    assert state is not None, "a new watch has seen no state"
    return {SYNCLINE_KEY: SYNCLINE_VERSION, PROGRAM_KEY: base64.b64encode(state).decode()}


def take_over_program(metadata: Mapping[str, str]) -> None:
    """In a worker: take over the state that the program had at its `init`."""
    state = metadata.get(PROGRAM_KEY)
    if state is not None:
        receiver = ProgramReceiver()
        receiver.apply(base64.b64decode(state))
        receiver.code_loaded()


def share_class_tables() -> None:
    """Let Ray's cloudpickle and ours share the tables of classes that are pickled by value.

    Ray's copy pickles values, ours pickles errors. With separate tables, a class that is sent with
    one and returns through the other would be a different class, and `except` would not catch it.
    May be called again.
    """
    lock = ray_cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK
    with lock:
        for name in _CLASS_TABLES:
            table = getattr(ray_cloudpickle, name)
            table.update(getattr(own_cloudpickle, name))
            setattr(own_cloudpickle, name, table)
        own_cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK = lock
