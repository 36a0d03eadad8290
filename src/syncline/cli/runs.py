"""`runs`: list the runs below a storage path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from rich.table import Table

from syncline.cli import find_runs
from syncline.cli.output import ago, console, duration, json_option, print_json, state, table
from syncline.dashboard.run_query import metrics_text
from syncline.runs import RunSummary

LONGEST_ERROR = 120
"""Characters of an error in the table."""


def runs_table(runs: Sequence[RunSummary], now: float | None = None) -> Table:
    """Return a table with a row for each run."""
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
        columns, rows, right=("age", "took", "reports", "kept"), folding=("run", "last report")
    )


def _length(run: RunSummary) -> float | None:
    end = run.ended or (run.last_activity if run.state != "running" else None)
    return max(0.0, end - run.started) if end is not None and run.started is not None else None


def last_text(run: RunSummary) -> str:
    """Return the error of a failed run, the progress of a search, or the last report."""
    if run.error is not None:
        return run.cause[:LONGEST_ERROR] or "errored"
    return " ".join(filter(None, (trials_text(run.trials), metrics_text(run.metrics))))


def trials_text(trials: Mapping[str, int] | None) -> str:
    """Return the progress of a search: "12/60 trials, 2 running, 1 failed;"."""
    if not trials:
        return ""
    ended, failed = trials.get("TERMINATED", 0) + trials.get("ERROR", 0), trials.get("ERROR", 0)
    parts = [f"{ended}/{trials['expected']} trials" if "expected" in trials else f"{ended} trials"]
    parts += [f"{trials['RUNNING']} running"] if trials.get("RUNNING") else []
    parts += [f"{failed} failed"] if failed else []
    return f"{', '.join(parts)};"


@click.command(name="runs")
@click.argument("storage_path", required=False)
@json_option
def runs_command(storage_path: str | None, as_json: bool) -> None:
    """List the runs below STORAGE_PATH, latest first.

    STORAGE_PATH is a directory, or a URI such as s3://bucket/runs; by default
    SYNCLINE_STORAGE_PATH, or ~/syncline_results. The command reads records only.
    """
    storage = find_runs.storage_directory(storage_path)
    found = find_runs.list_runs(storage)
    if as_json:
        print_json({"storage_path": storage.path, "runs": [run.as_json() for run in found]})
    elif not found:
        click.echo(f"No runs in {storage.path}.")
    else:
        console().print(runs_table(found))
