"""`OMP_NUM_THREADS` of workers: one thread per CPU of the task or actor, unless the program sets
it.

Libraries read the variable when they are loaded; libraries that are already loaded keep their
threads.
"""

from __future__ import annotations

import math
import os

from syncline import settings

VARIABLE = "OMP_NUM_THREADS"
_chosen: set[str | None] = {None}  # values that are not the program's


def threads_for(cpus: float | None) -> int:
    """Return the number of threads for a task or actor that holds `cpus`; at least 1."""
    return max(1, math.floor(cpus or 0))


def limit(threads: int) -> None:
    """Set the variable, unless its value is the program's."""
    if of_program() is None:
        value = os.environ[VARIABLE] = str(threads)
        _chosen.add(value)


def lift() -> None:
    """Remove the limit of this process, unless it is the program's."""
    if of_program() is None:
        os.environ.pop(VARIABLE, None)


def of_program() -> str | None:
    """Return the program's own value; None if it has none."""
    value = settings.environment(VARIABLE)
    return None if value in _chosen else value
