"""`runs`: list the runs below a storage path. Its subcommands that change runs are in
`run_changes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from rich.text import Text

from syncline.cli import find_runs, run_changes
from syncline.cli.output import ago, json_option, print_json, print_one_line_rows, state, warn
from syncline.dashboard.run_query import report_text
from syncline.runs import RunSummary
from syncline.runs.durations import duration

_COLUMNS = ("run", "state", "age", "took", "reports", "kept")
_WIDTHS = {"run": 16, "tags": 8, "last report": 32}
"""Least widths of the columns that are cut in a narrow terminal."""
_OPTIONAL = ("kept", "reports", "took", "tags", "age")
"""Columns that a narrow terminal leaves out, the first one first."""


def print_runs(runs: Sequence[RunSummary], now: float | None = None) -> None:
    """Print a table with one line for each run; complete texts if stdout is not a terminal."""
    tagged = any(run.tags for run in runs)
    rows: list[tuple[str | Text, ...]] = [
        (
            run.name,
            state(run.state),
            ago(run.started, now),
            duration(_length(run)),
            str(run.reports),
            str(run.checkpoints),
            *([" ".join(run.tags)] if tagged else []),
            last_text(run),
        )
        for run in runs
    ]
    columns = (*_COLUMNS, *(["tags"] if tagged else []), "last report")
    print_one_line_rows(
        columns,
        rows,
        right=("age", "took", "reports", "kept"),
        flexible={name: width for name, width in _WIDTHS.items() if name in columns},
        optional=[name for name in _OPTIONAL if name in columns],
    )


def _length(run: RunSummary) -> float | None:
    end = run.ended or (run.last_activity if run.state != "running" else None)
    return max(0.0, end - run.started) if end is not None and run.started is not None else None


def last_text(run: RunSummary) -> str:
    """Return the error of a failed run; else a stall, the progress of a search, the last report."""
    if run.error is not None:
        return run.cause or "errored"
    stall = f"{run.cause};" if run.cause else ""
    verdict = (run.experiment or {}).get("verdict")
    parts = (stall, trials_text(run.trials), f"{verdict};" if verdict else "", report_text(run))
    return " ".join(filter(None, parts))


def trials_text(trials: Mapping[str, int] | None) -> str:
    """Return the progress of a search: "12/60 trials, 2 running, 1 failed;"."""
    if not trials:
        return ""
    ended, failed = trials.get("TERMINATED", 0) + trials.get("ERROR", 0), trials.get("ERROR", 0)
    parts = [f"{ended}/{trials['expected']} trials" if "expected" in trials else f"{ended} trials"]
    parts += [f"{trials['RUNNING']} running"] if trials.get("RUNNING") else []
    parts += [f"{failed} failed"] if failed else []
    return f"{', '.join(parts)};"


class _ListByDefault(click.Group):
    """Runs `list` unless the first argument is a subcommand, as in `syncline runs PATH`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_complete = not ctx.resilient_parsing  # otherwise the shell completes the subcommand
        if args[:1] not in (["-h"], ["--help"]) and (args or is_complete):
            args = args if args and args[0] in self.commands else ["list", *args]
        return super().parse_args(ctx, args)


@click.group(
    name="runs", cls=_ListByDefault, subcommand_metavar="[STORAGE_PATH] | COMMAND [ARGS]..."
)
def runs_command() -> None:
    """List the runs below STORAGE_PATH, or change runs."""


@runs_command.command(name="list")
@click.argument("storage_path", required=False)
@click.option("--all", "everything", is_flag=True, help="List archived runs, too.")
@click.option("--tag", "tags", multiple=True, help="List runs with this tag; with each of several.")
@json_option
def list_command(
    storage_path: str | None, everything: bool, tags: tuple[str, ...], as_json: bool
) -> None:
    """List the runs below STORAGE_PATH, latest first, one line for each.

    STORAGE_PATH is a directory, or a URI such as s3://bucket/runs; by default
    SYNCLINE_STORAGE_PATH, or ~/syncline_results. The command reads records only. A terminal cuts
    long texts; `syncline runs | cat` prints them completely.
    """
    storage = find_runs.storage_directory(storage_path)
    found = find_runs.list_runs(storage)
    shown = [
        run
        for run in found
        if (everything or not run.archived) and all(tag in run.tags for tag in tags)
    ]
    if as_json:
        print_json({"storage_path": storage.path, "runs": [run.as_json() for run in shown]})
        return
    if not found:
        click.echo(f"No runs in {storage.path}.")
    elif not shown:
        click.echo(f"None of the {len(found)} runs in {storage.path} is listed.")
    else:
        print_runs(shown)
    archived = sum(run.archived for run in found)
    if archived and not everything:
        warn(f"{archived} archived run{'s'[: archived > 1]} not listed: --all")


for command in run_changes.COMMANDS:
    runs_command.add_command(command)
