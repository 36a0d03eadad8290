"""Shared parts of the reliability tests: the beginning of every program, and the check that it
leaves nothing.
"""

from __future__ import annotations

import time
import warnings

from syncline.testing import Program, assert_nothing_left
from syncline.testing.programs import SLOWNESS

DESIGN_S = 5.0
"""Within this time after its end nothing of a program is left, on a machine that is not
overloaded.
"""
PATIENCE_S = 60.0

PRELUDE = """
import faulthandler, os, random, signal, subprocess, sys, threading, time
faulthandler.dump_traceback_later(120, exit=True)
import numpy as np
import syncline
from syncline import exceptions
from syncline.core import refs
from syncline.core.engine import current_engine

LIMIT_S = 60


def hub():
    return current_engine()._connection._hub


def fork_server_pid():
    return hub().workers.fork_server_pid


def statistics():
    return current_engine().statistics()


def until(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not so within {LIMIT_S} s; {statistics()}")
        time.sleep(0.01)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def nothing_held():
    now = statistics()
    return not (
        now["objects"].objects or now["hub"].tasks or now["hub"].actors or now["hub"].streams
        or now["store"].in_use_segments or now["store"].disk_segments
    )


def until_nothing_held():
    until(nothing_held, "no task, actor or object is left in the hub's tables")

"""


def assert_all_gone(program: Program) -> None:
    """Wait until nothing of `program` is left; warn if that takes longer than the design allows."""
    began = time.monotonic()
    assert_nothing_left(program, within_s=PATIENCE_S / SLOWNESS)
    took_s = time.monotonic() - began
    if took_s > DESIGN_S:
        warnings.warn(
            f"it took {took_s:.1f} s until nothing of the program was left, not {DESIGN_S:g} s",
            stacklevel=2,
        )
