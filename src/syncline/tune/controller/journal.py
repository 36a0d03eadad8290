"""`SearchStore`: the state of a search on disk, such that a kill at any moment loses nothing.

In the experiment directory:

    search.json              {"generation": 12, …}: which of the following count
    search-000012.pkl        a snapshot: everything that the search knew when it was taken
    journal-000012.jsonl     what has happened since, a line each; handling that again gives the search as it was

A snapshot is taken when the journal has become as long as all the events before it, so that the
cost of an event does not grow with the search. On a filesystem that is not this machine's, lines
are sent in pieces (`journal-000012-00001.jsonl`, ...), so that a kill may lose the last
`SEND_EVERY_S` seconds: trials then go on from their checkpoints, and no more.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from syncline import faults
from syncline.runs.lines import LineFile, sealed_name
from syncline.train.storage import ArrowFiles
from syncline.tune.controller.events import Event, Suggested

POINTER_FILE = "search.json"
SEND_EVERY_S = 2.0
SEND_BYTES = 256 * 1024
FIRST_SNAPSHOT_EVENTS = 1000


class SearchStore:
    """Writes and reads the state of one search. One process writes at a time; not safe for use from
    several threads.

    Args:
        files: The experiment directory.
        clock: Monotonic seconds.
    """

    def __init__(self, files: ArrowFiles, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock = clock
        self._generation = 0
        self._oldest: int | None = None  # of which there are still files; None: see the pointer
        self._line_file: LineFile | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._pieces = 0
        self._last_sent = clock()
        self._events = 0  # of the search
        self._since_snapshot = 0

    def exists(self) -> bool:
        """Whether a search has been kept here."""
        return self._files.read(POINTER_FILE) is not None

    # -- writing

    def snapshot(self, state: bytes) -> None:
        """Keep `state`; the journal begins anew."""
        pointer = self._pointer()
        previous = pointer.get("generation", 0)
        # A kill may have kept earlier ones from being deleted.
        oldest = pointer.get("oldest", max(1, previous)) if self._oldest is None else self._oldest
        generation = max(self._generation, previous) + 1
        self._close_journal()
        self._files.write(_snapshot_name(generation), state)
        faults.reach("tune.before_pointer")
        self._files.write(
            POINTER_FILE,
            json.dumps(
                {"generation": generation, "oldest": oldest, "events": self._events}
            ).encode(),
        )
        faults.reach("tune.after_pointer")
        self._generation, self._since_snapshot = generation, 0
        for old in range(oldest, generation):
            for name in (_snapshot_name(old), *self._journal_names(old)):
                self._files.delete(name)
        self._oldest = generation

    def append(self, event: Event) -> None:
        """Write an event down."""
        # Configurations hold what a program defines itself; everything else is ours, or plain.
        dumps = cloudpickle.dumps if isinstance(event, Suggested) else _plain_or_cloudpickle
        line = base64.b64encode(dumps(event)) + b"\n"
        self._events += 1
        self._since_snapshot += 1
        directory = self._files.local_path
        if directory is not None:
            if self._line_file is None:
                self._line_file = LineFile(os.path.join(directory, _journal_name(self._generation)))
            self._line_file.append(line)
            return
        self._unsent.append(line)
        self._unsent_bytes += len(line)
        if self._unsent_bytes >= SEND_BYTES or self._clock() - self._last_sent >= SEND_EVERY_S:
            self.flush()

    @property
    def wants_snapshot(self) -> bool:
        """Whether the journal has become long."""
        return self._since_snapshot >= max(FIRST_SNAPSHOT_EVENTS, self._events // 2)

    def flush(self) -> None:
        """Send what has been collected, where lines are sent in pieces."""
        self._last_sent = self._clock()
        if self._unsent:
            self._files.write(
                sealed_name(_journal_name(self._generation), self._pieces + 1),
                b"".join(self._unsent),
            )
            self._pieces += 1
            self._unsent, self._unsent_bytes = [], 0

    def close(self) -> None:
        """Send what is left; nothing is written any more."""
        self._close_journal()

    # -- reading

    def load(self) -> tuple[bytes, Iterator[Event]]:
        """The latest snapshot, and what happened after it. Writing goes on in that journal.

        Raises:
            FileNotFoundError: No search has been kept here.
        """
        pointer = self._pointer()
        self._generation = pointer.get("generation", 0)
        state = self._files.read(_snapshot_name(self._generation)) if self._generation else None
        if state is None:
            raise FileNotFoundError(
                f"there is no {POINTER_FILE} with a snapshot, so no search has been kept here"
            )
        self._events = pointer["events"]
        return state, self._read_events()

    def _read_events(self) -> Iterator[Event]:
        for name in self._journal_names(self._generation):
            data = self._files.read(name) or b""
            for line in data.split(b"\n")[
                :-1
            ]:  # what follows the last newline was cut short by a kill
                self._events += 1
                self._since_snapshot += 1
                yield pickle.loads(base64.b64decode(line))

    def _journal_names(self, generation: int) -> list[str]:
        """Of the files that there are."""
        name = _journal_name(generation)
        if self._files.local_path is not None:
            return [name]
        pieces: list[str] = []
        while self._files.read(piece := sealed_name(name, len(pieces) + 1)) is not None:
            pieces.append(piece)
        if generation == self._generation:
            self._pieces = max(self._pieces, len(pieces))
        return pieces

    def _pointer(self) -> dict[str, int]:
        data = self._files.read(POINTER_FILE)
        return dict(json.loads(data)) if data else {}

    def _close_journal(self) -> None:
        self.flush()
        self._pieces = 0
        if self._line_file is not None:
            self._line_file.close()
            self._line_file = None


def _snapshot_name(generation: int) -> str:
    return f"search-{generation:06d}.pkl"


def _journal_name(generation: int) -> str:
    return f"journal-{generation:06d}.jsonl"


def _plain_or_cloudpickle(value: Any) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # a metric of a class that the program defines in a function, for instance
        return bytes(cloudpickle.dumps(value))
