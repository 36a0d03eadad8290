"""Small remote functions for tests; `get` and `await_free` with a time limit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import syncline
from syncline.testing.waiting import eventually

LIMIT_S = 60.0


def get(refs: Any) -> Any:
    """Return the values of references, which must exist within `LIMIT_S`."""
    return syncline.get(refs, timeout=LIMIT_S)


def await_free(name: str, amount: float) -> None:
    """Wait until this amount of a resource is free."""
    eventually(lambda: syncline.available_resources().get(name, 0) == amount)


def count_attempt(log: str | Path) -> int:
    """Return the number of calls with this file, including this one."""
    with open(log, "a") as file:
        file.write("x")
    return os.path.getsize(log)


@syncline.remote
def one() -> int:
    """Return 1."""
    return 1


@syncline.remote
def same(x: Any) -> Any:
    """Return the argument."""
    return x


@syncline.remote
def double(x: int) -> int:
    """Return twice the argument."""
    return 2 * x


@syncline.remote
def count(n: int) -> Iterator[int]:
    """Yield the numbers from 0 to `n` - 1."""
    yield from range(n)


@syncline.remote
def fail(text: str, kind: type[Exception] = KeyError) -> None:
    """Raise an error."""
    raise kind(text)


@syncline.remote(max_retries=0)
def crash(code: int = 1) -> None:
    """End the worker process."""
    os._exit(code)


@syncline.remote
def pid() -> int:
    """Return the id of the worker process."""
    return os.getpid()


@syncline.remote
def wait_for(path: str) -> str:
    """Wait until the file exists, and return its path."""
    while not Path(path).exists():
        time.sleep(0.005)
    return path


@syncline.remote
def gpu_ids() -> list[int | str]:
    """Return the GPUs of the task."""
    return syncline.get_gpu_ids()


@syncline.remote(num_cpus=1)
def group_id() -> str | None:
    """Return the id of the placement group of the task."""
    return syncline.get_runtime_context().get_placement_group_id()
