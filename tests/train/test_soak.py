"""A run with many reports and many restarts leaves nothing behind: what it holds and what it writes
per report stays what it was.

The suite's run is short; `SOAK_RESTARTS=50` has 2 000 reports and prints its figures (`pytest -s`).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil
import pytest

import syncline
from syncline import train

RESTARTS = int(os.environ.get("SOAK_RESTARTS", "10"))
REPORTS_PER_RESTART, REPORTS_PER_CHECKPOINT = 40, 10
GROWTH_BYTES = 4 * 1024**2
"""More than noise, less than some 100 kB for each restart of the long run."""
EARLY = slice(RESTARTS // 5, 2 * RESTARTS // 5)
LATE = slice(4 * RESTARTS // 5, RESTARTS)

pytestmark = [pytest.mark.long, pytest.mark.processes, pytest.mark.timeout(60 + 10 * RESTARTS)]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.shutdown()
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the program holds, and its run directory, at one moment."""

    memory_bytes: float
    """Of the program's own process."""
    descriptors: float
    threads: float
    processes: float
    """Below the program's."""
    files: float
    """In the run directory."""
    record_bytes_per_report: float
    """Of what is in there beside checkpoints."""

    @classmethod
    def of(cls, folder: Path) -> Load:
        gc.collect()
        program = psutil.Process()
        files = [file for file in folder.rglob("*") if file.is_file()]
        record_bytes = sum(file.stat().st_size for file in files if "checkpoint_" not in str(file))
        reports = sum(file.read_bytes().count(b"\n") for file in folder.glob("metrics*.jsonl"))
        return cls(
            memory_bytes=program.memory_info().rss,
            descriptors=program.num_fds(),
            threads=program.num_threads(),
            processes=len(program.children(recursive=True)),
            files=len(files),
            record_bytes_per_report=record_bytes / reports,
        )

    @classmethod
    def typical(cls, loads: Sequence[Load]) -> Load:
        """The median of each figure."""
        return cls(
            **{
                each.name: statistics.median(getattr(load, each.name) for load in loads)
                for each in fields(cls)
            }
        )


class Measure(train.UserCallback):
    """Takes the load whenever an attempt has failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loads: list[Load] = []

    def after_exception(self, *_: Any, **__: Any) -> None:
        self.loads.append(Load.of(self.folder))


def reporting(config: dict[str, Any]) -> None:
    """Reports, and kills one of the ranks in the middle of each stretch, once."""
    rank, step = train.get_context().get_world_rank(), 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        step = json.loads(Path(checkpoint.path, "step").read_text())
    while step < REPORTS_PER_RESTART * RESTARTS:
        step += 1
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text(str(step))
            saved = train.Checkpoint(directory) if step % REPORTS_PER_CHECKPOINT == 0 else None
            train.report({"step": step, "loss": 1 / step}, checkpoint=saved)
        if step % REPORTS_PER_RESTART == REPORTS_PER_RESTART // 2 + 5:
            train.collective.barrier()
            mark = Path(config["folder"], str(step))
            if rank == (step // REPORTS_PER_RESTART) % 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def test_many_reports_and_restarts_leave_nothing_behind(tmp_path: Path) -> None:
    marks, run = tmp_path / "marks", tmp_path / "run"
    marks.mkdir()
    measure = Measure(run)
    result = train.DataParallelTrainer(
        reporting,
        train_loop_config={"folder": str(marks)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(tmp_path),
            failure_config=train.FailureConfig(max_failures=-1),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
            callbacks=[measure],
        ),
    ).fit()
    assert result.metrics is not None
    assert result.metrics["step"] == REPORTS_PER_RESTART * RESTARTS
    assert len(measure.loads) == RESTARTS
    early, late = (Load.typical(measure.loads[part]) for part in (EARLY, LATE))
    print(
        f"{RESTARTS} restarts, {REPORTS_PER_RESTART * RESTARTS} reports\n"
        f"  early: {early}\n  late:  {late}"
    )
    assert late.memory_bytes - early.memory_bytes < GROWTH_BYTES
    assert late.descriptors <= early.descriptors + 2
    assert late.threads <= early.threads + 1
    assert late.processes <= early.processes
    assert late.files <= early.files + 4
    assert late.record_bytes_per_report <= 1.1 * early.record_bytes_per_report
