"""`LogIndex`: finds the lines of logs that contain a text, counts all, and returns pages of them in
the order in which they were written, for a viewer.

The whole files are searched, in blocks, and only positions are kept. New output is read with the
next `read`. Lines of several workers are merged by `log_times`; without times, worker after worker.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.runs.log_times import LogTimes, times_name
from syncline.runs.run_directory import LOGS_DIRECTORY
from syncline.runs.run_storage import FileInfo, StorageDirectory
from syncline.runs.tailing import LogFile, terminal_text

BLOCK_BYTES = 4 * 1024**2
MAX_LINE_BYTES = 16 * 1024**2
"""Maximum bytes of a line; the rest of a longer one counts as another line."""
SHOWN_CHARACTERS = 5_000
"""Characters of a line that are returned."""
MAX_LINES = 5_000_000
"""Maximum matching lines; later ones are counted only."""
MAX_PART_BYTES = 64 * 1024**2
"""Bytes at the end of a file that are searched; files that syncline writes are smaller."""
_TIMES_BYTES = 64 * 1024**2


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of a page."""

    member: str
    """Name of the worker: "rank-0"."""
    text: str
    """Text as a terminal shows it; the end of a long line is cut."""
    time: float | None
    """Time of the output in seconds since the epoch, if known."""
    more: int = 0
    """Bytes of the line that were cut."""


@dataclass(kw_only=True)
class _Part:
    """One file of a log, and what of it was read."""

    member: int
    name: str
    info: FileInfo
    position: int = 0
    """Position after the last complete line that was read."""
    times: LogTimes = field(default_factory=LogTimes)
    times_bytes: int = 0


class LogIndex:
    """Matching lines of some logs. For one thread at a time.

    Args:
        run: Directory of the run.
        text: Text that lines must contain, in any case; "" for all lines.
    """

    def __init__(self, run: StorageDirectory, text: str = "") -> None:
        self._run = run
        self._needle = text.lower()
        self._bytes = self._needle.encode() if self._needle.isascii() else None
        self._members: list[str] = []
        self._parts: list[_Part] = []
        self._clear()

    def _clear(self) -> None:
        self._parts = []
        self._of_part = array("H")
        self._starts = array("q")
        self._lengths = array("q")
        self._times = array("d")
        self._order: Any = None
        self.total = 0
        """Number of lines."""
        self.matching = 0
        """Number of lines that contain the text."""
        self.left_out_bytes = 0
        """Bytes at the beginning of files that are too large to be searched."""

    def read(self, logs: Sequence[LogFile], *, ended: bool = False) -> bool:
        """Read new output; return True if there was any.

        Args:
            logs: Logs to search.
            ended: Count an incomplete last line, as nothing follows it.

        Raises:
            OSError: A log cannot be read.
        """
        before = self.total
        found = list(self._listed(logs))
        if not self._continues(found):
            self._clear()
            before = -1
        self._members = [log.member for log in logs]
        for number, (name, member, info) in enumerate(found):
            if number == len(self._parts):
                skipped = max(0, info.size - MAX_PART_BYTES)
                self.left_out_bytes += skipped
                self._parts.append(_Part(member=member, name=name, info=info, position=skipped))
            self._parts[number].info = info
            self._read_part(number, ended=ended)
        return self.total != before

    def page(self, first: int, count: int) -> list[LogLine]:
        """Return matching lines, from number `first` on.

        Raises:
            OSError: A log cannot be read.
        """
        order = self._ordered()
        return [self._line(int(place)) for place in order[max(0, first) : max(0, first) + count]]

    def _listed(self, logs: Sequence[LogFile]) -> Iterator[tuple[str, int, FileInfo]]:
        """Yield (file, worker, metadata) of all parts, the oldest part of each worker first."""
        for number, log in enumerate(logs):
            for part in log.parts:
                info = self._run.file_info(f"{LOGS_DIRECTORY}/{part}")
                if info is not None:
                    yield f"{LOGS_DIRECTORY}/{part}", number, info

    def _continues(self, found: Sequence[tuple[str, int, FileInfo]]) -> bool:
        """Return True if the parts that were read are the first of those found and have only
        grown.
        """
        return len(self._parts) <= len(found) and all(
            part.name == name
            and part.member == member
            and part.info.identity == info.identity
            and info.size >= part.position
            for part, (name, member, info) in zip(self._parts, found, strict=False)
        )

    def _read_part(self, number: int, *, ended: bool) -> None:
        part = self._parts[number]
        if part.position >= part.info.size:
            return
        times = times_name(part.name)
        if self._run.size(times) != part.times_bytes:
            data = self._run.read_range(times, 0, _TIMES_BYTES)
            part.times, part.times_bytes = LogTimes(data), len(data)
        limit = BLOCK_BYTES
        while part.position < part.info.size:
            data = self._run.read_range(part.name, part.position, limit)
            if not data:
                return
            is_last = part.position + len(data) >= part.info.size
            end = data.rfind(b"\n") + 1
            if not end:
                if limit < MAX_LINE_BYTES and not is_last:
                    limit *= 2
                    continue
                if is_last and not ended and len(data) < MAX_LINE_BYTES:
                    return
                end = len(data)
            elif is_last and ended:
                end = len(data)
            self._search(number, data[:end])
            part.position += end
            limit = BLOCK_BYTES

    def _search(self, number: int, data: bytes) -> None:
        """Add the matching lines of whole lines."""
        part = self._parts[number]
        start = part.position
        for line in data.removesuffix(b"\n").split(b"\n"):
            self.total += 1
            if self._matches(line):
                self.matching += 1
                if self.matching <= MAX_LINES:
                    self._of_part.append(number)
                    self._starts.append(start)
                    self._lengths.append(len(line))
                    self._times.append(part.times.at(start) or 0.0)
            start += len(line) + 1
        self._order = None

    def _matches(self, line: bytes) -> bool:
        if not self._needle:
            return True
        shown = line.rstrip(b"\r").rpartition(b"\r")[2]
        if self._bytes is not None:
            return self._bytes in shown.lower()
        return self._needle in shown.decode(errors="replace").lower()

    def _ordered(self) -> Any:
        """Return the numbers of the matching lines in the order of their times."""
        if self._order is None:
            if len(self._members) < 2:
                self._order = range(len(self._starts))
            else:
                self._order = _numpy().argsort(_numpy().array(self._times), kind="stable")
        return self._order

    def _line(self, place: int) -> LogLine:
        part = self._parts[self._of_part[place]]
        length = self._lengths[place]
        data = self._run.read_range(part.name, self._starts[place], length)
        text = terminal_text(data.decode(errors="replace"))
        return LogLine(
            member=self._members[part.member],
            text=text[:SHOWN_CHARACTERS],
            time=self._times[place] or None,
            more=max(0, len(text) - SHOWN_CHARACTERS),
        )


def _numpy() -> Any:
    """Load numpy on first use: the dashboard starts without it."""
    return importlib.import_module("numpy")
