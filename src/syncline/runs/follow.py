"""Reading files that grow: lines of JSON, and logs that rotate. Each reader remembers how far it
has come.

Lines that cannot be read are passed over and counted: who shows a run shows what is there.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from syncline.runs import parsing
from syncline.runs.directory import LOGS_DIRECTORY
from syncline.runs.lines import sealed_name
from syncline.runs.places import Place

LARGEST_FILE = 64 * 1024**2
"""Of a file of lines so much is read; records that syncline writes are smaller."""
BATCH_BYTES = 1024**2
"""So much of one is in memory at a time."""
LONGEST_LINE = 16 * 1024**2
"""Behind a line that is longer, nothing is read."""
MOST_VALUES = 2_000_000
"""In a file of lines: what comes after them is not read, as each takes some hundred bytes of
memory.
"""
MOST_LINES = 250_000
"""As well; files that syncline writes are thinned long before."""
LONGEST_BEGUN = 1_000_000
"""Bytes of a line of a log that wait for its end."""
MOST_LOGS = 20_000
"""Files with output of workers that are looked at in a run."""
_KNOWN_BYTES = 64
"""By so many bytes before the place where it is read on a log is known again."""
LOG_FILE = re.compile(r"(?P<member>.+?)(?:\.(?P<age>[0-9]+))?\.log")
"""A log and its earlier parts: `rank-0.log`, `rank-0.1.log`."""


class LineReader:
    """Reads a file of lines on from where it stopped, over the pieces in which it lies. For one
    thread.

    A line without an end stays where it is: it may become longer, or a run that goes on after a
    kill cuts it off.
    """

    def __init__(self, run: Place, name: str) -> None:
        self._run = run
        self._name = name
        self._piece = 0  # so many sealed pieces are read to their ends
        self._offset = 0  # behind the last whole line
        self._room = LARGEST_FILE
        self._lines = 0
        self.values = 0
        """How many values there were in what was read, at most."""
        self.unreadable = 0
        """Lines that were passed over."""

    @property
    def is_full(self) -> bool:
        """Whether as much was read as ever is: what comes after it is left out."""
        return self._room <= 0

    def read(self) -> list[dict[str, Any]]:
        """The records that were added. OSError if the file cannot be read."""
        return [record for batch in self.batches() for record in batch]

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """The same in parts of about a megabyte, so that not all of a large file is in memory at
        once.
        """
        while True:
            sealed = sealed_name(self._name, self._piece + 1)
            if self._run.facts(sealed) is not None:
                # What is sealed now was the current piece before, and a part of it may have been
                # read.
                while lines := self._next_lines(sealed):
                    yield self._parsed(lines)
                self._piece, self._offset = self._piece + 1, 0
                continue
            if self._piece and self._is_sealed_already():
                return
            before = self._offset
            lines = self._next_lines(self._name)
            if lines and self._run.local_path is None and self._run.facts(sealed) is not None:
                self._offset = (
                    before  # it was sealed meanwhile: these may be lines of the next piece
                )
                continue
            if not lines:
                return
            yield self._parsed(lines)

    def _next_lines(self, name: str) -> list[bytes]:
        """Whole lines that follow."""
        limit = min(BATCH_BYTES, self._room)
        while limit > 0:
            data = self._run.read_from(name, self._offset, limit)
            end = data.rfind(b"\n") + 1
            if end:
                self._offset += end
                self._room -= end
                return data[: end - 1].split(b"\n")
            if len(data) < limit:
                return []
            if limit >= min(LONGEST_LINE, self._room):
                self._room = 0
                return []
            limit = min(4 * limit, LONGEST_LINE, self._room)  # a line that is longer
        return []

    def _is_sealed_already(self) -> bool:
        """Whether a kill has left in the current piece what the last sealed one has."""
        if self._offset:
            return False
        head = self._run.read_from(self._name, 0, 256)
        return bool(head) and head == self._run.read_from(
            sealed_name(self._name, self._piece), 0, len(head)
        )

    def _parsed(self, lines: list[bytes]) -> list[dict[str, Any]]:
        text = b",".join(lines)
        values = parsing.weight(text)
        self.values += values
        self._lines += len(lines)
        if self.values > MOST_VALUES or self._lines > MOST_LINES:
            self._room = 0
        records: list[Any] = []
        if values <= parsing.MOST_VALUES and parsing.fits(text):
            try:
                records = json.loads(b"[" + text + b"]")  # in one go, which is quicker than each
            except (ValueError, RecursionError):
                pass
        if len(records) != len(lines):
            records = [self._parse(line) for line in lines]
        found = [record for record in records if isinstance(record, dict)]
        self.unreadable += len(lines) - len(found)
        return found

    @staticmethod
    def _parse(line: bytes) -> Any:
        try:
            return parsing.parsed(line)
        except ValueError:
            return None


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """What one worker printed."""

    member: str
    """Whose it is: "rank-0"."""
    size_bytes: int
    """Of all parts."""
    parts: tuple[str, ...]
    """File names in `logs/`, the oldest first."""


def log_files(run: Place) -> list[LogFile]:
    """The logs of a run, by number where there are numbers."""
    parts: dict[str, list[tuple[int, str]]] = {}
    sizes = {
        name: facts.size
        for name, facts in itertools.islice(run.facts_in(LOGS_DIRECTORY).items(), MOST_LOGS)
    }
    for name in sizes:
        found = LOG_FILE.fullmatch(name)
        if found is not None:
            parts.setdefault(found["member"], []).append((-int(found["age"] or 0), name))
    files = []
    for member, ordered in parts.items():
        names = tuple(name for _, name in sorted(ordered))
        files.append(
            LogFile(member=member, size_bytes=sum(sizes[name] for name in names), parts=names)
        )
    return sorted(
        files,
        key=lambda file: (
            [int(number) for number in re.findall(r"[0-9]+", file.member)],
            file.member,
        ),
    )


class LogReader:
    """Reads one worker's log on from where it stopped, also where a new part is begun meanwhile.
    For one thread.
    """

    def __init__(self, run: Place, member: str, *, tail_bytes: int | None = None) -> None:
        """`tail_bytes`: begin so much before the end; None begins with the oldest part that there
        is.
        """
        self._run = run
        self._current = f"{LOGS_DIRECTORY}/{member}.log"
        self._before = f"{LOGS_DIRECTORY}/{member}.1.log"
        self._tail_bytes = tail_bytes
        self._has_begun = False
        self._offset = 0
        self._file = 0  # the current part
        self._last = b""  # what was read last of it, by which it is known again: numbers of files are given again
        self._begun = b""
        self._cut = False

    def lines(self, *, ending: bool = False) -> list[str]:
        """The lines that have been added; with `ending`, also one that has no end. OSError if the
        file cannot be read.
        """
        *whole, self._begun = (self._begun + self._added()).split(b"\n")
        if self._cut and whole:
            self._cut = False
            del whole[0]
        if (
            len(self._begun) > LONGEST_BEGUN
        ):  # a progress bar, of which the last state is enough, or no text at all
            self._begun = self._begun.rpartition(b"\r")[2]
        if (ending or len(self._begun) > LONGEST_BEGUN) and self._begun:
            whole.append(self._begun)
            self._begun = b""
        return [shown(line.decode(errors="replace")) for line in whole]

    def _added(self) -> bytes:
        before = b"" if self._has_begun else self._beginning()
        facts = self._run.facts(self._current)
        file = facts.identity if facts is not None else 0
        added = self._following(self._current) if self._file in (file, 0) else None
        self._file = file
        if (
            added is None
        ):  # a new part was begun: what was read is the one before now, unless that was replaced, too
            rest = self._following(self._before)
            before = self._run.read_from(self._before, 0) if rest is None else rest
            self._offset, self._last = 0, b""
            added = self._run.read_from(self._current, 0)
        self._has_begun = self._has_begun or bool(before or added)
        self._offset += len(added)
        self._last = (self._last + added[-_KNOWN_BYTES:])[-_KNOWN_BYTES:]
        return before + added

    def _following(self, name: str) -> bytes | None:
        """What comes in a part after what was read; None where this is not the part that was
        read.
        """
        data = self._run.read_from(name, self._offset - len(self._last))
        return data[len(self._last) :] if data.startswith(self._last) else None

    def _beginning(self) -> bytes:
        """What is to be read of the part before the current one. Says where to begin in that."""
        if self._tail_bytes is None:
            return self._run.read_from(self._before, 0)
        size = self._run.size(self._current)
        if size >= self._tail_bytes:
            self._offset = size - self._tail_bytes
            self._cut = self._offset > 0
            return b""
        skipped = max(0, self._run.size(self._before) - (self._tail_bytes - size))
        self._cut = skipped > 0
        return self._run.read_from(self._before, skipped)


def shown(line: str) -> str:
    """A line as a terminal leaves it: of a progress bar that was drawn again and again, the last
    state.
    """
    return line.rstrip("\r").rpartition("\r")[2]
