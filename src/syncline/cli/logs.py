"""`logs`: what the workers of a run printed, from the files that the run directory keeps, one for each rank; also while they grow.

On storage that is not a directory the run uploads them from time to time, and they are shown as far as they are there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from syncline.cli import records
from syncline.cli.output import CommandError, json_option, print_json
from syncline.cli.records import Place
from syncline.runs.directory import LOGS_DIRECTORY

_RANK_FILE = re.compile(r"rank-(\d+)\.log")
PAUSE_S = 0.2
"""Between two looks at files that grow."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line that a worker printed."""

    rank: int
    text: str


class RankFollower:
    """Reads one rank's file on from where it stopped; lines are given out when their end is there."""

    def __init__(self, run: Place, rank: int) -> None:
        self._run = run
        self._rank = rank
        self._offset = 0
        self._begun = b""

    def lines(self, *, ending: bool = False) -> list[LogLine]:
        """The lines that have been added; with `ending`, also one that has no end."""
        data = self._run.read_from(f"{LOGS_DIRECTORY}/rank-{self._rank}.log", self._offset)
        self._offset += len(data)
        *whole, self._begun = (self._begun + data).split(b"\n")
        if ending and self._begun:
            whole.append(self._begun)
            self._begun = b""
        return [LogLine(rank=self._rank, text=shown(line.decode(errors="replace"))) for line in whole]


def shown(line: str) -> str:
    """A line as a terminal leaves it: of a progress bar that was drawn again and again, the last state."""
    return line.rstrip("\r").rpartition("\r")[2]


def ranks(run: Place) -> list[int]:
    """Ranks that have a log file, in order."""
    return sorted(int(match.group(1)) for name in run.file_names(LOGS_DIRECTORY) if (match := _RANK_FILE.fullmatch(name)))


def follow(run: Place, rank: int | None, *, pause_s: float = PAUSE_S) -> Iterator[LogLine]:
    """Every line of the run, or of one rank, as it comes; ends when the run has ended."""
    followers: dict[int, RankFollower] = {}
    while True:
        ended = records.summarise(run).state != "running"
        for number in ranks(run):
            if rank is None or number == rank:
                followers.setdefault(number, RankFollower(run, number))
        for follower in followers.values():
            yield from follower.lines(ending=ended)
        if ended:
            return
        time.sleep(pause_s)


@click.command(name="logs")
@click.argument("run", required=False)
@click.option("--rank", type=click.IntRange(min=0), help="Only this rank's.")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the run ends.")
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only the last lines of each rank.")
@click.option("--storage-path", help="Where runs are kept: a directory or a URI.")
@json_option
def logs_command(run: str | None, rank: int | None, following: bool, lines: int | None, storage_path: str | None, as_json: bool) -> None:
    """What the workers of RUN printed, rank after rank: a run's name, path or URI; by default the latest run.

    --json prints a line for each: {"rank": 0, "line": "…"}.
    """
    place = records.find_run(run, records.place(storage_path))
    present = ranks(place)
    if not following and not present:
        raise CommandError(
            f"{place.path} has no logs: its workers printed nothing yet, or it ran in local mode, where output goes to the terminal"
        )
    if rank is not None and not following and rank not in present:
        raise CommandError(f"{place.path} has no rank {rank}: its ranks are {', '.join(map(str, present))}")
    chosen = [rank] if rank is not None else present
    labelled = rank is None and (len(present) > 1 or following)
    for line in follow(place, rank) if following else _present(place, chosen, lines):
        if as_json:
            print_json({"rank": line.rank, "line": line.text})
        else:
            click.echo(f"[rank {line.rank}] {line.text}" if labelled else line.text)


def _present(run: Place, chosen: list[int], limit: int | None) -> Iterator[LogLine]:
    for rank in chosen:
        lines = RankFollower(run, rank).lines(ending=True)
        yield from lines if limit is None else lines[len(lines) - min(limit, len(lines)) :]
