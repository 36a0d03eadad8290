"""`SearchStore`: the state of a search on disk; a kill at any moment loses nothing. `snapshot`,
`restore` and `load_trials` turn a search into bytes and back.

In the experiment directory:

    search.json              {"generation": 12, …}: the current snapshot and journal
    search-000012.pkl        snapshot: the whole state of the search
    journal-000012.jsonl     events since the snapshot, one a line; handling them rebuilds the state

A snapshot is taken when the journal is as long as all events before it, so that the cost of an
event does not grow with the search. On a remote filesystem lines are sent in pieces
(`journal-000012-00001.jsonl`, …), so a kill may lose the last `SEND_EVERY_S` seconds; trials then
continue from their checkpoints.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, cast

import cloudpickle
from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.optional import without_collections
from syncline.runs.record_files import LineFile, sealed_name
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import ArrowFiles, StorageContext
from syncline.tune.callback import CallbackList
from syncline.tune.controller import events
from syncline.tune.controller.events import Event, Instruction, TrialSuggested
from syncline.tune.controller.state import TuneMachine
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.plain_pickle import dumps_with
from syncline.tune.result import TIMESTAMP
from syncline.tune.search.search_algorithm import SearchAlgorithm

POINTER_FILE = "search.json"
SEND_EVERY_S = 2.0
SEND_BYTES = 256 * 1024
FIRST_SNAPSHOT_EVENTS = 4000


class SearchStore:
    """Writes and reads the state of one search. Single writer; not thread-safe.

    Args:
        files: Experiment directory.
        clock: Monotonic seconds.
    """

    def __init__(self, files: ArrowFiles, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock = clock
        self._generation = 0
        self._oldest: int | None = None  # oldest generation with files; None: read the pointer
        self._line_file: LineFile | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._pieces = 0
        self._last_sent = clock()
        self._events = 0  # of the whole search
        self._since_snapshot = 0

    def exists(self) -> bool:
        """Return True if the directory holds a search."""
        return self._files.read(POINTER_FILE) is not None

    # -- writing

    def snapshot(self, state: bytes) -> None:
        """Write a snapshot and start a new journal."""
        pointer = self._pointer()
        previous = pointer.get("generation", 0)
        # A kill may have prevented the deletion of earlier generations.
        oldest = pointer.get("oldest", max(1, previous)) if self._oldest is None else self._oldest
        generation = max(self._generation, previous) + 1
        self.close()
        self._files.write(_snapshot_name(generation), state)
        faults.reach("tune.before_pointer")
        new_pointer = {"generation": generation, "oldest": oldest, "events": self._events}
        self._files.write(POINTER_FILE, json.dumps(new_pointer).encode())
        faults.reach("tune.after_pointer")
        self._generation, self._since_snapshot = generation, 0
        for old in range(oldest, generation):
            for name in (_snapshot_name(old), *self._journal_names(old)):
                self._files.delete(name)
        self._oldest = generation

    def append(self, event: Event) -> None:
        """Append an event to the journal."""
        # Configurations may hold objects of the program; all other values are plain or ours.
        if not isinstance(event, TrialSuggested):
            data = _plain_or_cloudpickle(event)
        elif type(event.factory) is PlacementGroupFactory:
            data = dumps_with(event, [event.config, event.evaluated_params])
        else:
            data = bytes(cloudpickle.dumps(event))
        line = base64.b64encode(data) + b"\n"
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
        """True if the journal has become long."""
        return self._since_snapshot >= max(FIRST_SNAPSHOT_EVENTS, self._events // 2)

    def flush(self) -> None:
        """Send buffered lines to a remote filesystem."""
        self._last_sent = self._clock()
        if self._unsent:
            name = sealed_name(_journal_name(self._generation), self._pieces + 1)
            self._files.write(name, b"".join(self._unsent))
            self._pieces += 1
            self._unsent, self._unsent_bytes = [], 0

    def close(self) -> None:
        """Send buffered lines and close the journal."""
        self.flush()
        self._pieces = 0
        if self._line_file is not None:
            self._line_file.close()
            self._line_file = None

    # -- reading

    def load(self) -> tuple[bytes, Iterator[Event]]:
        """Return the latest snapshot and the events after it. Later events go to that journal.

        Raises:
            FileNotFoundError: The directory holds no search.
        """
        pointer = self._pointer()
        self._generation = pointer.get("generation", 0)
        state = self._files.read(_snapshot_name(self._generation)) if self._generation else None
        if state is None:
            raise FileNotFoundError(
                f"there is no {POINTER_FILE} with a snapshot, so the directory holds no search"
            )
        self._events = pointer["events"]
        return state, self._read_events()

    def _read_events(self) -> Iterator[Event]:
        for name in self._journal_names(self._generation):
            data = self._files.read(name) or b""
            for line in data.split(b"\n")[:-1]:  # a kill may have cut off the last line
                self._events += 1
                self._since_snapshot += 1
                yield pickle.loads(base64.b64decode(line))

    def _journal_names(self, generation: int) -> list[str]:
        """Return the names of the existing journal files of a generation."""
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


class _State(TypedDict):
    """Content of a snapshot."""

    machine: TuneMachine
    search: object
    callbacks: dict[str, Any] | None


@without_collections()
def snapshot(machine: TuneMachine, search: SearchAlgorithm, callbacks: CallbackList) -> bytes:
    """Return the whole state of a search."""
    state = _State(machine=machine, search=search.get_state(), callbacks=callbacks.get_state())
    file = io.BytesIO()
    _Pickler(file).dump(state)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no type hints
    """cloudpickle's pickler with one table of reducers instead of two, which Python code would
    search for each object.
    """

    def __init__(self, file: io.BytesIO) -> None:
        self.dispatch_table = dict(cloudpickle.Pickler.dispatch_table)
        super().__init__(file)


@without_collections()
def restore(
    store: SearchStore, search: SearchAlgorithm, callbacks: CallbackList
) -> tuple[TuneMachine, list[Instruction]]:
    """Return the machine after the last event of the journal, and restore `search` and `callbacks`.

    The second value holds the instructions of that event, which a kill may have prevented. Those of
    all earlier events were carried out.

    Raises:
        FileNotFoundError: The directory holds no search.
    """
    data, journal = store.load()
    state: _State = pickle.loads(data)
    machine = state["machine"]
    search.set_state(cast("Any", state["search"]))
    if state["callbacks"]:
        callbacks.set_state(state["callbacks"])
    machine.search_alg = search
    instructions: list[Instruction] = []
    times = _Times()
    for event in journal:
        times.add(event)
        # Let the searcher and the stopper take the same steps. Their recorded answers count.
        if isinstance(event, events.TrialSuggested):
            search.next_trial(event.trial_id)
        elif isinstance(event, events.NoSuggestion) and not search.is_finished():
            search.next_trial("")
        machine.with_stopper_verdict(event)
        instructions = machine.handle(event)
        for do in instructions:
            if isinstance(do, events.ReportResult | events.ReportCompletion):
                tell(search, do)
    machine.stopper.count_time(times.elapsed_s)
    return machine, instructions


class _Times:
    """Times of the events of one process, for the time that it ran after the snapshot."""

    def __init__(self) -> None:
        self._first = self._last = 0.0

    def add(self, event: Event) -> None:
        if isinstance(event, events.SearchStarted | events.SearchResumed):
            time_s: object = event.time_s
        elif isinstance(event, events.TrialStepped):
            time_s = event.result.get(TIMESTAMP)
        else:
            return
        if isinstance(time_s, int | float) and time_s:
            self._first = self._first or time_s
            self._last = max(self._last, time_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first to the last event."""
        return self._last - self._first


def tell(search: SearchAlgorithm, do: events.ReportResult | events.ReportCompletion) -> None:
    """Pass the result or the end of a trial to the searcher."""
    if isinstance(do, events.ReportResult):
        search.on_trial_result(do.trial_id, dict(do.result))
    else:
        result = dict(do.result) if do.result is not None else None
        search.on_trial_complete(do.trial_id, result, do.error)


@without_collections()
def load_trials(path: str, filesystem: pyarrow_fs.FileSystem | None = None) -> list[Trial]:
    """Return the trials of the search in a directory, which may have been moved. Writes nothing.

    Raises:
        FileNotFoundError: The directory holds no search.
    """
    storage = storage_at(path, filesystem)
    store = SearchStore(storage.files)
    if not store.exists():
        raise FileNotFoundError(
            f"{path!r} has no {POINTER_FILE}, so it holds no search: pass the experiment "
            "directory itself, `storage_path`/`name` of its RunConfig or `results.experiment_path`."
        )
    data, journal = store.load()
    state: _State = pickle.loads(data)
    machine = state["machine"]
    for event in journal:
        machine.handle(event)
    relocate(machine, storage)
    return list(machine.trials)


def storage_at(path: str, filesystem: pyarrow_fs.FileSystem | None) -> StorageContext:
    """Return the experiment directory at a path."""
    parent, _, name = path.rstrip("/").rpartition("/")
    return StorageContext(parent or ".", name, filesystem)


def relocate(machine: TuneMachine, storage: StorageContext) -> None:
    """Set the experiment directory of a restored search, which may have been moved."""
    old = machine.rules.storage
    if old == storage:
        return
    machine.set_storage(storage)
    before = old.experiment_fs_path.rstrip("/") + "/"
    after = storage.experiment_fs_path.rstrip("/") + "/"

    def moved(checkpoint: Checkpoint) -> Checkpoint:
        if not checkpoint.path.startswith(before):
            return checkpoint
        return Checkpoint(after + checkpoint.path[len(before) :], storage.storage_filesystem)

    for trial in machine.trials:
        directory = StorageContext(
            storage.experiment_fs_path, trial.relative_logdir, storage.storage_filesystem
        )
        trial.relocate(directory, moved)


def _snapshot_name(generation: int) -> str:
    return f"search-{generation:06d}.pkl"


def _journal_name(generation: int) -> str:
    return f"journal-{generation:06d}.jsonl"


def _plain_or_cloudpickle(value: object) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:  # for instance a metric of a class that is defined inside a function
        return bytes(cloudpickle.dumps(value))
