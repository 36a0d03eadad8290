"""`runs`: the runs below a storage path, finished, running or killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from syncline.cli import records
from syncline.cli.output import ago, console, duration, json_option, print_json, state, table
from syncline.runs import RunSummary

SHOWN_METRICS = 3
"""So many of a report's metrics are in the table; `--json` has all."""
LONGEST_ERROR = 120
"""Characters of an error that are in the table."""


def runs_table(runs: Sequence[RunSummary], now: float | None = None) -> Table:
    """A row for each run."""
    rows = [
        (
            run.name,
            state(run.state),
            ago(run.started, now),
            duration(_length(run)),
            str(run.reports),
            str(run.checkpoints),
            last_text(run),
        )
        for run in runs
    ]
    columns = ("run", "state", "age", "took", "reports", "kept", "last report")
    return table(
        columns, rows, right=("age", "took", "reports", "kept"), yielding=("run", "last report")
    )


def _length(run: RunSummary) -> float | None:
    end = run.ended or (run.last_activity if run.state != "running" else None)
    return max(0.0, end - run.started) if end is not None and run.started is not None else None


def last_text(run: RunSummary) -> str:
    """What came last: the error of a run that failed, how far a search is, or a report."""
    if run.error is not None:
        return error_text(run.error)
    return " ".join(filter(None, (trials_text(run.trials), metrics_text(run.metrics))))


def trials_text(trials: Mapping[str, int] | None) -> str:
    """How far a search is: "12/60 trials, 2 running, 1 failed;"."""
    if not trials:
        return ""
    ended, failed = trials.get("TERMINATED", 0) + trials.get("ERROR", 0), trials.get("ERROR", 0)
    parts = [f"{ended}/{trials['expected']} trials" if "expected" in trials else f"{ended} trials"]
    parts += [f"{trials['RUNNING']} running"] if trials.get("RUNNING") else []
    parts += [f"{failed} failed"] if failed else []
    return f"{', '.join(parts)};"


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """The first numbers of a report: "loss=0.3 accuracy=0.91"."""
    numbers = [
        (name, value)
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    shown = " ".join(f"{name}={value:.4g}" for name, value in numbers[:SHOWN_METRICS])
    return f"{shown} …" if len(numbers) > SHOWN_METRICS else shown


def error_text(error: str) -> str:
    """What a table shows of an error: the last line, which in a traceback is the exception."""
    lines = error.strip().splitlines()
    return lines[-1].strip()[:LONGEST_ERROR] if lines else "failed"


@click.command(name="runs")
@click.argument("storage_path", required=False)
@json_option
def runs_command(storage_path: str | None, as_json: bool) -> None:
    """The runs below STORAGE_PATH, the latest first: a directory, or a URI such as
    s3://bucket/runs.

    By default SYNCLINE_STORAGE_PATH, or else ~/syncline_results. Nothing needs to be running.
    """
    storage = records.place(storage_path)
    found = records.runs_below(storage)
    if as_json:
        print_json({"storage_path": storage.path, "runs": [run.as_json() for run in found]})
    elif not found:
        click.echo(f"No runs in {storage.path}.")
    else:
        console().print(runs_table(found))
