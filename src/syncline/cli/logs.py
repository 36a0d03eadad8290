"""`logs`: print the log files of a run's ranks or a search's trials, also while they grow.

On remote storage the run uploads its log files from time to time, so the newest lines may be
missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import click

from syncline.cli import find_runs
from syncline.cli.output import CommandError, json_option, print_json, warn
from syncline.runs import run_list
from syncline.runs.run_storage import StorageDirectory
from syncline.runs.tailing import LogReader, log_files

PAUSE_S = 0.2
"""Seconds between two reads of growing files."""
PAUSE_ELSEWHERE_S = 2.0
"""Seconds between two reads of remote files, which the run uploads every few seconds."""
_LISTED = 10
"""Members that an error names."""


def members(run: StorageDirectory) -> list[str]:
    """Return the members that have a log file, sorted: `rank-0`, or the id of a trial."""
    return [file.member for file in log_files(run)]


def follow(
    run: StorageDirectory, member: str | None, *, pause_s: float = PAUSE_S
) -> Iterator[tuple[str, str]]:
    """Yield (member, line) of the run, or of one member, as they come, until the run ends."""
    readers: dict[str, LogReader] = {}
    while True:
        ended = run_list.summarize_run(run).state != "running"
        for name in members(run):
            if member in (None, name):
                readers.setdefault(name, LogReader(run, name))
        for name, reader in readers.items():
            for line in reader.lines(ending=ended):
                yield name, line
        if ended:
            return
        time.sleep(pause_s if run.local_path is not None else max(pause_s, PAUSE_ELSEWHERE_S))


@click.command(name="logs")
@click.argument("run", required=False, shell_complete=find_runs.complete_run)
@click.argument("trial", required=False)
@click.option("--rank", type=click.IntRange(min=0), help="Print this rank only.")
@click.option("-f", "--follow", "following", is_flag=True, help="Follow the run until it ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Print the last lines per rank.")
@find_runs.storage_option
@json_option
def logs_command(
    run: str | None,
    trial: str | None,
    rank: int | None,
    following: bool,
    lines: int | None,
    storage_path: str | None,
    as_json: bool,
) -> None:
    """Print the output of RUN's workers, rank after rank, or of a search's trials.

    RUN is a run's name, path or URI; by default the latest run. TRIAL is the id or the name of a
    trial. --json prints one object per line: {"rank": 0, "line": "…"} or {"trial": "…", "line":
    "…"}.
    """
    place = find_runs.find_run(run, find_runs.storage_directory(storage_path))
    present = members(place)
    if not following and not present:
        raise CommandError(
            f"{place.path} has no logs: its workers have printed nothing, or it ran in local mode, "
            "where output goes to the terminal"
        )
    member = f"rank-{rank}" if rank is not None else _of_trial(trial, present)
    if member is not None and member not in present and not following:
        listed = ", ".join(map(_label, present[:_LISTED]))
        raise CommandError(
            f"{place.path} has no logs of {_label(member)}, only of {listed}"
            + (f" and {len(present) - _LISTED} others" if len(present) > _LISTED else "")
        )
    chosen = [member] if member is not None else present
    labelled = member is None and (len(present) > 1 or following)
    printed = False
    for name, line in follow(place, member) if following else _present(place, chosen, lines):
        printed = True
        if as_json:
            kind, _, number = name.rpartition("-")
            print_json(
                {"rank": int(number), "line": line}
                if kind == "rank"
                else {"trial": name, "line": line}
            )
        else:
            click.echo(f"[{_label(name)}] {line}" if labelled else line)
    if not printed and lines != 0:
        who = _label(member) if member is not None else "the workers"
        warn(f"{who} of {place.path} printed nothing")


def _of_trial(trial: str | None, present: Sequence[str]) -> str | None:
    """Return the member of a trial, given by its id or its name, which ends with the id."""
    if trial is None:
        return None
    return next((name for name in present if trial == name or trial.endswith(f"_{name}")), trial)


def _label(member: str) -> str:
    return f"rank {member[5:]}" if member.startswith("rank-") else f"trial {member}"


def _present(
    run: StorageDirectory, chosen: Sequence[str], limit: int | None
) -> Iterator[tuple[str, str]]:
    for name in chosen:
        lines = LogReader(run, name).lines(ending=True)
        for line in lines if limit is None else lines[max(0, len(lines) - limit) :]:
            yield name, line
