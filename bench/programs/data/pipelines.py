"""Shared by the data programs: start a library on two CPUs with a budget, and time passes over
batches.
"""

import importlib
import os
import time
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.inputs import INPUT

BATCH_ROWS = 128
CPUS = 2


def input_folder() -> Path:
    """Return the folder with this row's input."""
    return Path(os.environ[INPUT])


def start(
    library: str, budget_bytes: int | None = None, cpus: int = CPUS
) -> tuple[ModuleType, ModuleType]:
    """Start a library; return it and its module `data`, without progress bars.

    `budget_bytes` limits the object store and the executions.
    """
    core = importlib.import_module(library)
    core.init(num_cpus=cpus, object_store_memory=budget_bytes)
    data = importlib.import_module(f"{library}.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    if budget_bytes is not None:
        context.execution_options.resource_limits = data.ExecutionResources(
            object_store_memory=budget_bytes
        )
    return core, data


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass over batches: `first_at` is the monotonic time of the first batch, durations are
    seconds.
    """

    rows: int
    first_at: float
    first_s: float
    total_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.total_s


def timed(batches: Callable[[], Iterable[Any]], column: str | int) -> Pass:
    """Time a pass over `batches()` and count the values in `column`.

    Raises:
        RuntimeError: There is no batch.
    """
    begin = time.monotonic()
    rows, first_at = 0, None
    for batch in batches():
        values: Sized = batch[column]
        rows += len(values)
        first_at = first_at or time.monotonic()
    if first_at is None:
        raise RuntimeError("the measured pipeline produced no batch: check its input")
    return Pass(
        rows=rows, first_at=first_at, first_s=first_at - begin, total_s=time.monotonic() - begin
    )


def two_epochs(batches: Callable[[], Iterable[Any]], column: str | int) -> dict[str, float]:
    """Return the time of the first batch, and the latency and throughput of a second epoch."""
    cold, warm = timed(batches, column), timed(batches, column)
    assert cold.rows == warm.rows, f"{cold.rows} rows in the first epoch, {warm.rows} in the second"
    return {
        "first_batch_at": cold.first_at,
        "warm_first_batch_s": warm.first_s,
        "rows_per_s": warm.rows_per_s,
        "rows": warm.rows,
    }
