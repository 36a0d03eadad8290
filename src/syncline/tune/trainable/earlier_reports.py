"""What a trainer in a trial has reported before a kill, and the search does not know: the trial
tells it again.

The trainer's run and the search are kept apart, and a kill may come when the run has written down
what the search has not: the run then goes on from a later checkpoint than the trial's. Read from
the run's record, so that every report counts once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from syncline.runs.record import RunRecord
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import StorageContext


def earlier_reports(
    run: StorageContext, known: Checkpoint | None, *, started: bool
) -> Iterator[tuple[dict[str, Any], Checkpoint | None]]:
    """Metrics and checkpoint of each report of a run after that of the checkpoint `known`, up to
    the one from which the run goes on.

    Args:
        run: The run directory. known: The trial's latest checkpoint; None if it has none. started:
        Whether the run has been started again already; what it has reported since is not meant.
    """
    record = RunRecord(run.files)
    if not record.exists():
        return
    events = record.events()
    index_of = {
        event["name"]: int(event["report"]) for event in events if event["event"] == "checkpoint"
    }
    kept = {
        entry["index"]: entry["name"]
        for entry in (record.checkpoints() or {}).get("checkpoints", ())
    }
    starts = [int(event["next_report"]) for event in events if event["event"] == "started"]
    end = starts[-1] if started and starts else float("inf")
    first = (
        index_of.get(run.name_of(known), -1) + 1 if known is not None and run.contains(known) else 0
    )
    for report in sorted(record.reports(rank=0), key=lambda report: int(report["iteration"])):
        index = int(report["iteration"])
        # What came after the last checkpoint before a start was trained again.
        next_start = min((start for start in starts if start > index), default=float("inf"))
        if first <= index < end and any(
            index <= checkpoint < next_start for checkpoint in index_of.values()
        ):
            yield report["metrics"], run.checkpoint(kept[index]) if index in kept else None
