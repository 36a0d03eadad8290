"""What the programs with pipelines share: a library ready to work on two CPUs, budgets, and clocks
on loops over batches.
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
    """The folder with this row's input."""
    return Path(os.environ[INPUT])


def start(
    library: str, budget_bytes: int | None = None, cpus: int = CPUS
) -> tuple[ModuleType, ModuleType]:
    """The library, up on so many CPUs, and its module for data, quiet; with a budget, object store
    and executions are held to it.
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
    """One loop over batches: `first_at` is the monotonic second of the first batch, durations are
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
    """Runs through `batches()`, counting what is in `column` of each; RuntimeError if there is no
    batch.
    """
    begin = time.monotonic()
    rows, first_at = 0, None
    for batch in batches():
        values: Sized = batch[column]
        rows += len(values)
        first_at = first_at or time.monotonic()
    if first_at is None:
        raise RuntimeError("there was no batch: the measured pipeline gives no rows")
    return Pass(
        rows=rows, first_at=first_at, first_s=first_at - begin, total_s=time.monotonic() - begin
    )


def two_epochs(batches: Callable[[], Iterable[Any]], column: str | int) -> dict[str, float]:
    """When the first batch came, and, of a second epoch, how soon its first batch came and how fast
    all rows did.
    """
    cold, warm = timed(batches, column), timed(batches, column)
    assert cold.rows == warm.rows, f"{cold.rows} rows in the first epoch, {warm.rows} in the second"
    return {
        "first_batch_at": cold.first_at,
        "warm_first_batch_s": warm.first_s,
        "rows_per_s": warm.rows_per_s,
        "rows": warm.rows,
    }
