"""Journals: where the lines of executions go. An execution of a program has a run directory; passes
of a training run share a file.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from syncline import settings
from syncline.core import lifecycle
from syncline.data.execute.recording.lines import Ended, error_text
from syncline.data.execute.recording.old_runs import PREFIX, remove_old
from syncline.data.execute.recording.pace import Pace
from syncline.data.execute.recording.writer import Writer, writer
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.values import encode

if TYPE_CHECKING:
    from syncline.data.execute.program import Program
    from syncline.data.execute.recording.place import RecordPlace

logger = logging.getLogger("syncline")

NAMELESS = "dataset"
"""What records of a dataset without a name are called."""
_LONGEST_NAME = 60
_WAIT_AT_END_S = 0.1
"""A worker may be killed as soon as a pass has ended, so its last line is waited for; where that
takes longer, it may be missing.
"""
_UPLOAD_EVERY_S = 30.0
"""How often a file that lies elsewhere is written anew during a pass."""


class Journal(ABC):
    """A file of lines. `write` and `next_number` return at once; what is to be written is done by
    the writer, which alone calls `_put`.
    """

    is_shared: bool
    """Whether several executions share it, the passes of a training run."""

    def __init__(self, dataset: str, *, by: Writer | None = None) -> None:
        self.dataset = dataset
        self.pace = Pace()
        self._writer = by or writer()
        self._numbers = count()
        self._is_broken = False

    def next_number(self) -> int:
        """The number of a pass that begins."""
        return next(self._numbers)

    def write(self, line: Mapping[str, Any]) -> None:
        """One more line."""
        data = encode(line)
        self.pace.spend(len(data))
        self._post(partial(self._put, line, data))

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """More about a pass, for its first line."""

    @abstractmethod
    def end(self, ended: Ended, error: BaseException | None) -> None:
        """The lines of an execution are complete. Waits for a disk for a tenth of a second at
        most.
        """

    @abstractmethod
    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        """Write a line, of which `data` is the text. Whatever it raises ends the journal."""

    def _post(self, job: Callable[[], None]) -> None:
        def done() -> None:
            if self._is_broken:
                return
            try:
                job()
            except Exception as error:
                self._is_broken = True
                logger.debug(
                    "executions of %s are not recorded any more: %s",
                    self.dataset or NAMELESS,
                    error,
                )

        self._writer.post(done)


class OwnRun(Journal):
    """A run directory below the storage path, made when the first line is written.

    Args:
        program: What is executed.
        storage: The storage path, on this machine.
        by: Writes.
    """

    is_shared = False

    def __init__(self, program: Program, storage: str, *, by: Writer | None = None) -> None:
        super().__init__(program.name, by=by)
        self._program = program
        self._storage = storage
        self._token = secrets.token_hex(4)
        self._run: RunDirectory | None = None

    def facts(self) -> dict[str, Any]:
        """None: `run.json` has them."""
        return {}

    def end(self, ended: Ended, error: BaseException | None) -> None:
        """The outcome. The writer has done it when the program ends, at the latest."""
        self._post(partial(self._close, ended, None if error is None else error_text(error)))

    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        if self._run is None:
            self._run = self._begin()
        self._run.line(f"data/{file_name(self.dataset)}-{self._token}.jsonl", line)

    def _begin(self) -> RunDirectory:
        program = self._program
        name = (
            f"{PREFIX}{file_name(self.dataset)}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{self._token}"
        )
        directory = os.path.join(self._storage, name)
        os.makedirs(self._storage, exist_ok=True)
        os.mkdir(directory)  # never one that is there: the name is this execution's
        run = RunDirectory(LocalFiles(directory))
        config = {
            "plan": self._plan(),
            "seed": program.seed,
            "epoch": program.epoch,
            "cpus": program.shape.cpus,
            "budget_bytes": program.shape.budget_bytes,
        }
        run.write_run(name, config, kind="data", detailed=False)
        run.event("started", dataset=self.dataset)
        self._remove_old()
        return run

    def _plan(self) -> str:
        try:
            return self._program.plan() if self._program.plan is not None else ""
        except Exception as error:  # sources of the program's own take part in it
            return f"cannot be shown: {error!r}"

    def _remove_old(self) -> None:
        try:
            remove_old(self._storage)
        except OSError as error:
            logger.debug(
                "old records of executions in %s could not be removed: %s", self._storage, error
            )

    def _close(self, ended: Ended, error: str | None) -> None:
        if self._run is not None:
            self._run.event("errored" if ended == "errored" else "finished", how=ended)
            self._run.write_outcome(
                "errored" if ended == "errored" else "finished", error, ended=ended
            )
            self._run.close()


class RunFile(Journal):
    """A file in the directory of a training run: all passes of this process over one dataset."""

    is_shared = True

    def __init__(
        self,
        place: RecordPlace,
        *,
        by: Writer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(place.dataset, by=by)
        self._files = place.files
        self._name = f"data/{file_name(place.dataset)}-{secrets.token_hex(4)}.jsonl"
        self._run = RunDirectory(place.files) if place.files.local_path is not None else None
        # Elsewhere files are written as a whole. This one is never large, and so need not lie on
        # this machine's disk besides, where a process that is killed would leave it.
        self._lines: list[bytes] = []
        self._clock = clock
        self._uploaded_at = clock()

    def facts(self) -> dict[str, Any]:
        """Which process it is."""
        return {"pid": os.getpid(), "hostname": socket.gethostname()}

    def end(self, ended: Ended, error: BaseException | None) -> None:
        """What lies elsewhere is written there."""
        self._post(self._upload)
        self._writer.drain(_WAIT_AT_END_S)

    def _put(self, line: Mapping[str, Any], data: bytes) -> None:
        if self._run is not None:
            self._run.line(self._name, line)
            return
        self._lines.append(data)
        if self._clock() >= self._uploaded_at + _UPLOAD_EVERY_S:
            self._upload()

    def _upload(self) -> None:
        if self._run is None:
            self._uploaded_at = self._clock()
            self._files.write(self._name, b"".join(self._lines))


def journal_for(program: Program) -> Journal | None:
    """Where an execution that begins now is recorded; None for one that a task or an actor of a
    program runs, and without a disk for it.
    """
    place = program.context._record_place
    if place is not None:
        return _shared(place)
    storage = settings.storage_path()
    if "://" in storage or not lifecycle.is_program():
        return None
    return OwnRun(program, settings.local_path(storage))


def file_name(name: str) -> str:
    """A name for people as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)[:_LONGEST_NAME].strip(".-") or NAMELESS


_shared_files: dict[str, RunFile] = {}


def _shared(place: RecordPlace) -> RunFile:
    """The file of this process for a place."""
    return _shared_files.setdefault(place.key, _shared_files.get(place.key) or RunFile(place))


def _after_fork_in_child() -> None:
    _shared_files.clear()  # those are the parent's


os.register_at_fork(after_in_child=_after_fork_in_child)
