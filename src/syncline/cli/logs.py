"""`logs`: what the workers of a run printed, from the files that the run directory keeps, one for
each rank; also while they grow.

On storage that is not a directory the run uploads them from time to time, and they are shown as far
as they are there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from syncline.cli import records
from syncline.cli.output import CommandError, json_option, print_json, warn
from syncline.runs import run_list
from syncline.runs.run_storage import StorageDirectory
from syncline.runs.tailing import LogReader, log_files

_RANK = re.compile(r"rank-(\d+)")
PAUSE_S = 0.2
"""Between two looks at files that grow."""
PAUSE_ELSEWHERE_S = 2.0
"""The same where each look takes many requests, and what is new comes every few seconds anyway."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line that a worker printed."""

    rank: int
    text: str


def ranks(run: StorageDirectory) -> list[int]:
    """Ranks that have a log file, in order."""
    return sorted(
        int(match.group(1)) for file in log_files(run) if (match := _RANK.fullmatch(file.member))
    )


def follow(run: StorageDirectory, rank: int | None, *, pause_s: float = PAUSE_S) -> Iterator[LogLine]:
    """Every line of the run, or of one rank, as it comes; ends when the run has ended."""
    readers: dict[int, LogReader] = {}
    while True:
        ended = run_list.summarize_run(run).state != "running"
        for number in ranks(run):
            if rank is None or number == rank:
                readers.setdefault(number, _reader(run, number))
        for number, reader in readers.items():
            yield from _labelled(number, reader.lines(ending=ended))
        if ended:
            return
        time.sleep(pause_s if run.local_path is not None else max(pause_s, PAUSE_ELSEWHERE_S))


def _reader(run: StorageDirectory, rank: int) -> LogReader:
    return LogReader(run, f"rank-{rank}")


def _labelled(rank: int, lines: list[str]) -> Iterator[LogLine]:
    return (LogLine(rank=rank, text=line) for line in lines)


@click.command(name="logs")
@click.argument("run", required=False)
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank's.")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the run ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only the last lines of each rank.")
@click.option("--storage-path", help="Where runs are kept: a directory or a URI.")
@json_option
def logs_command(
    run: str | None,
    rank: int | None,
    following: bool,
    lines: int | None,
    storage_path: str | None,
    as_json: bool,
) -> None:
    """What the workers of RUN printed, rank after rank: a run's name, path or URI; by default the
    latest run.

    --json prints a line for each: {"rank": 0, "line": "…"}.
    """
    place = records.find_run(run, records.place(storage_path))
    present = ranks(place)
    if not following and not present:
        raise CommandError(
            f"{place.path} has no logs: its workers printed nothing yet, or it ran in local mode, where output goes to the terminal"
        )
    if rank is not None and not following and rank not in present:
        raise CommandError(
            f"{place.path} has no rank {rank}: its ranks are {', '.join(map(str, present))}"
        )
    chosen = [rank] if rank is not None else present
    labelled = rank is None and (len(present) > 1 or following)
    printed = False
    for line in follow(place, rank) if following else _present(place, chosen, lines):
        printed = True
        if as_json:
            print_json({"rank": line.rank, "line": line.text})
        else:
            click.echo(f"[rank {line.rank}] {line.text}" if labelled else line.text)
    if not printed and lines != 0:
        warn(
            f"{f'rank {rank}' if rank is not None else 'the workers'} of {place.path} printed nothing"
        )


def _present(run: StorageDirectory, chosen: list[int], limit: int | None) -> Iterator[LogLine]:
    for rank in chosen:
        lines = _reader(run, rank).lines(ending=True)
        yield from _labelled(
            rank, lines if limit is None else lines[len(lines) - min(limit, len(lines)) :]
        )
