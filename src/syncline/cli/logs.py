"""`logs`: print the log files of a run's ranks, also while they grow.

On remote storage the run uploads its log files from time to time, so the newest lines may be
missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import click

from syncline.cli import find_runs
from syncline.cli.output import CommandError, json_option, print_json, warn
from syncline.runs import run_list
from syncline.runs.run_storage import StorageDirectory
from syncline.runs.tailing import LogReader, log_files

_RANK = re.compile(r"rank-(\d+)")
PAUSE_S = 0.2
"""Seconds between two reads of growing files."""
PAUSE_ELSEWHERE_S = 2.0
"""Seconds between two reads of remote files, which the run uploads every few seconds."""


def ranks(run: StorageDirectory) -> list[int]:
    """Return the ranks that have a log file, sorted."""
    return sorted(
        int(match.group(1)) for file in log_files(run) if (match := _RANK.fullmatch(file.member))
    )


def follow(
    run: StorageDirectory, rank: int | None, *, pause_s: float = PAUSE_S
) -> Iterator[tuple[int, str]]:
    """Yield (rank, line) of the run, or of one rank, as they come, until the run ends."""
    readers: dict[int, LogReader] = {}
    while True:
        ended = run_list.summarize_run(run).state != "running"
        for number in ranks(run):
            if rank is None or number == rank:
                readers.setdefault(number, _reader(run, number))
        for number, reader in readers.items():
            for line in reader.lines(ending=ended):
                yield number, line
        if ended:
            return
        time.sleep(pause_s if run.local_path is not None else max(pause_s, PAUSE_ELSEWHERE_S))


def _reader(run: StorageDirectory, rank: int) -> LogReader:
    return LogReader(run, f"rank-{rank}")


@click.command(name="logs")
@click.argument("run", required=False)
@click.option("--rank", type=click.IntRange(min=0), help="Print this rank only.")
@click.option("-f", "--follow", "following", is_flag=True, help="Follow the run until it ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Print the last lines per rank.")
@click.option("--storage-path", help="Parent directory or URI of the runs.")
@json_option
def logs_command(
    run: str | None,
    rank: int | None,
    following: bool,
    lines: int | None,
    storage_path: str | None,
    as_json: bool,
) -> None:
    """Print the output of RUN's workers, rank after rank.

    RUN is a run's name, path or URI; by default the latest run. --json prints one object per line:
    {"rank": 0, "line": "…"}.
    """
    place = find_runs.find_run(run, find_runs.storage_directory(storage_path))
    present = ranks(place)
    if not following and not present:
        raise CommandError(
            f"{place.path} has no logs: its workers have printed nothing, or it ran in local mode, "
            "where output goes to the terminal"
        )
    if rank is not None and not following and rank not in present:
        raise CommandError(
            f"{place.path} has no logs of rank {rank}, only of {', '.join(map(str, present))}"
        )
    chosen = [rank] if rank is not None else present
    labelled = rank is None and (len(present) > 1 or following)
    printed = False
    for number, line in follow(place, rank) if following else _present(place, chosen, lines):
        printed = True
        if as_json:
            print_json({"rank": number, "line": line})
        else:
            click.echo(f"[rank {number}] {line}" if labelled else line)
    if not printed and lines != 0:
        who = f"rank {rank}" if rank is not None else "the workers"
        warn(f"{who} of {place.path} printed nothing")


def _present(
    run: StorageDirectory, chosen: list[int], limit: int | None
) -> Iterator[tuple[int, str]]:
    for rank in chosen:
        lines = _reader(run, rank).lines(ending=True)
        for line in lines if limit is None else lines[max(0, len(lines) - limit) :]:
            yield rank, line
