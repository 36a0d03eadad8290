"""Threads of libraries in workers: one per CPU of the task or actor, unless the program sets
`OMP_NUM_THREADS`.

Libraries read the variable when they are loaded. A worker may be forked with libraries: torch gets
its number by a call, others keep their threads.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Protocol, cast

from syncline import settings

VARIABLE = "OMP_NUM_THREADS"
_chosen: set[str | None] = {None}  # values that are not the program's
_of_torch: int | None = None  # threads of torch before the first limit


class _Torch(Protocol):
    """The functions of torch that are used here."""

    def get_num_threads(self) -> int: ...

    def set_num_threads(self, count: int, /) -> None: ...


def threads_for(cpus: float | None) -> int:
    """Return the number of threads for a task or actor that holds `cpus`; at least 1."""
    return max(1, math.floor(cpus or 0))


def limit(threads: int) -> None:
    """Set the variable and torch's number of threads, unless the value is the program's."""
    global _of_torch
    if of_program() is not None:
        return
    value = os.environ[VARIABLE] = str(threads)
    _chosen.add(value)
    torch = _loaded_torch()
    if torch is not None:
        _of_torch = _of_torch or torch.get_num_threads()
        torch.set_num_threads(threads)


def lift() -> None:
    """Remove the limit of this process, unless it is the program's."""
    global _of_torch
    if of_program() is not None:
        return
    os.environ.pop(VARIABLE, None)
    torch = _loaded_torch()
    if torch is not None and _of_torch is not None:
        torch.set_num_threads(_of_torch)
        _of_torch = None


def of_program() -> str | None:
    """Return the program's own value; None if it has none."""
    value = settings.environment(VARIABLE)
    return None if value in _chosen else value


def _loaded_torch() -> _Torch | None:
    torch = sys.modules.get("torch")
    return cast(_Torch, torch) if hasattr(torch, "set_num_threads") else None
