"""Remote controller: on a cluster, the controller of a run is an actor that outlives the program.

`RunActor` runs the controller. It is detached and named after the run directory, so that any
program can find it. It exits when the run has ended and its outcome was fetched, or after a limit;
the run directory has everything that is needed then.

`run_remotely` and `attach` are the program's side: they start or find the actor, display its
events, and return the result. Ctrl-C in an attached program aborts the run. If a program dies or
loses its connection, the run continues.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import cloudpickle
from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.core import api
from syncline.core.context import get_runtime_context
from syncline.core.error_frames import pack_error, unpack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.core.remote import ActorHandle, remote
from syncline.core.tracebacks import user_traceback
from syncline.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from syncline.runs import RunRecord, discovery
from syncline.runs.discovery import RUN_ACTOR_NAMESPACE
from syncline.runs.json_values import plain
from syncline.storage import filesystem as directories
from syncline.train.config import FailureConfig
from syncline.train.console.console_reporter import display_for
from syncline.train.console.display import Display
from syncline.train.controller.attempt import FUTILE_CONTROLLER_FAILURES
from syncline.train.controller.driver import TrainController
from syncline.train.controller.event_stream import (
    Attached,
    Ended,
    EventStream,
    Line,
    SnapshotTaken,
    StreamEvent,
)
from syncline.train.controller.live_actions import LiveError
from syncline.train.errors import ControllerError, TrainingFailedError
from syncline.train.result import Result
from syncline.train.snapshots.code_version import code_version
from syncline.train.storage.context import ArrowFiles, StorageContext
from syncline.train.workers.spec import RunSpec, SerializedValue, serialize

# -- the actor

CONCURRENCY = 24
"""Concurrent calls: the event streams of all readers, and short calls."""
FETCH_LIMIT_S = 60.0
"""Seconds that the actor waits for a reader to fetch the outcome."""
OTHERS_LIMIT_S = 2.0
"""Seconds that it waits for the other readers after that."""
EXIT_DELAY_S = 0.1
"""Seconds between its last answer and its exit, so that the answer arrives."""

# -- the program

EXIT_LIMIT_S = 5.0
"""Seconds that an actor may take to exit after its run has ended before it is killed."""
ABORT_LIMIT_S = 15.0
"""Seconds that a run may take to abort before its actor is killed."""
NAME_LIMIT_S = 30.0
"""Seconds that the name of an actor may stay taken after its end."""
POLL_S = 0.05


class RunActor:
    """Controller of one run in a thread. Attached programs call the methods."""

    def __init__(self, spec: SerializedValue, starter: str, path: str) -> None:
        self._starter = starter
        self._path = path
        self._events = EventStream()
        self._controller: TrainController | None = None
        self._aborted = False
        self._lock = threading.Lock()
        self._self = get_runtime_context().current_actor
        threading.Thread(
            target=self._live, args=(spec,), name="syncline-controller", daemon=True
        ).start()

    def follow(self, reader: str, after: int, snapshots: bool) -> Iterator[tuple[StreamEvent, ...]]:
        """Yield the events of the run after line `after`, with snapshots for readers that draw."""
        fetched = self._events.fetched
        yield (Attached(starter=self._starter, path=self._path, fetched=fetched),)
        yield from self._events.read(reader, after, snapshots=snapshots)

    def confirm(self, reader: str) -> None:
        """Record that a reader has the outcome."""
        self._events.confirm(reader)

    def abort(self) -> None:
        """Abort the run, as Ctrl-C does."""
        with self._lock:
            self._aborted = True
            controller = self._controller
        if controller is not None:
            controller.interrupt()

    def ask(self, action: str, arguments: Mapping[str, object]) -> object:
        """Answer a request like `LiveActions.answer`.

        Raises:
            LiveError: The run has not started, or as `LiveActions.answer` does.
        """
        with self._lock:
            controller = self._controller
        if controller is None:
            raise LiveError("The run is starting and has no workers yet. Try again in a moment.")
        return controller.live.answer(action, arguments)

    def wait_until_ended(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`; return True if the run has ended."""
        return self._events.wait_until_ended(timeout_s)

    def _live(self, spec: SerializedValue) -> None:
        logging.getLogger("syncline").addHandler(_EventStreamHandler(self._events))
        try:
            self._events.end(self._run(spec.load()))
        except KeyboardInterrupt:
            self._events.end(Ended(aborted=True))
        except BaseException as error:
            packed = pack_error(error, traceback_text=user_traceback(error).rstrip())
            self._events.end(Ended(error=packed))
        self._events.wait_until_fetched(FETCH_LIMIT_S, OTHERS_LIMIT_S)
        threading.Event().wait(EXIT_DELAY_S)
        api.kill(self._self)

    def _run(self, spec: RunSpec) -> Ended:
        controller = TrainController(spec, display=self._events)
        with self._lock:
            self._controller = controller
            aborted = self._aborted
        if aborted:
            controller.interrupt()
        result, value = controller.run_pickled()
        return Ended(result=cloudpickle.dumps(result), return_value=value)


class _EventStreamHandler(logging.Handler):
    """Puts log records of the controller into an event stream."""

    def __init__(self, events: EventStream) -> None:
        super().__init__(logging.INFO)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.print_event(f"syncline: {record.getMessage()}")


class _RunEnded(Exception):
    """The actor belongs to a run that has ended and whose outcome was fetched."""


def uses_remote_controller() -> bool:
    """Return True if controllers are actors: on a cluster, but not inside of tasks and actors.

    A training inside of a task ends together with the task.
    """
    engine = ensure_engine()
    return engine.outlives_driver and engine.runtime_info().task_id is None


def run_remotely(spec: RunSpec) -> Result:
    """Run `fit()` with a remote controller. If the run is in progress, attach to it.

    Raises:
        TrainingFailedError, ValueError, TypeError: As the controller does.
        KeyboardInterrupt: The program was interrupted; the run has ended.
    """
    with display_for(spec.run_config) as display:
        return _run_remotely(spec, display)


def _run_remotely(spec: RunSpec, display: Display) -> Result:
    storage = StorageContext.from_run_config(spec.run_config)
    serialized = _serialized_spec(spec)
    limit = (spec.run_config.failure_config or FailureConfig()).controller_failure_limit
    limit = FUTILE_CONTROLLER_FAILURES if limit < 0 else limit
    failures = 0
    while True:
        program = secrets.token_hex(8)
        actor = _start_or_find(storage, serialized, program)
        try:
            return _result(_followed(actor, program, display))
        except _RunEnded:
            _wait_until_gone(storage, actor)
        except RayActorError as error:
            failures += 1
            if failures > limit:
                raise ControllerError(error) from None
            display.print_event(
                f"syncline: the controller of {storage.experiment_dir_name} was lost, another one "
                f"continues ({error})"
            )
            _wait_until_gone(storage, actor)


def attach(
    run: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None = None
) -> Result:
    """Attach to a run that another program has started on the cluster; return its result.

    The result of a run that has ended is read from its directory, without its `return_value`.
    Ctrl-C aborts the run.

    Args:
        run: The run directory (`storage_path`/`name`), or the name of a run in progress.
        storage_filesystem: Filesystem of the directory; by default derived from it.

    Raises:
        ValueError: No such run is in progress and there is no such directory, or several runs in
            progress have this name.
        TrainingFailedError: The run has failed, or was interrupted; `fit()` with the same name
            would continue it.
    """
    storage = _storage_of(run, storage_filesystem)
    parts = {name: name.split(":", 2) for name in _actor_names()}
    digest = discovery.storage_digest(
        storage.storage_filesystem.type_name, storage.experiment_fs_path
    )
    found = [name for name, (_, of_run, _) in parts.items() if of_run == digest]
    found = found or [
        name for name, (_, _, run_name) in parts.items() if run_name == os.fspath(run)
    ]
    if len(found) > 1:
        raise ValueError(
            f"{len(found)} runs in progress have the name {run!r}: pass the run directory instead."
        )
    if not found:
        return _recorded(storage)
    try:
        with display_for() as display:
            actor = api.get_actor(found[0], RUN_ACTOR_NAMESPACE)
            return _result(_followed(actor, secrets.token_hex(8), display))
    except (_RunEnded, RayActorError):
        return _recorded(storage)


def _serialized_spec(spec: RunSpec) -> SerializedValue:
    name = getattr(spec.train_function, "__name__", repr(spec.train_function))
    described: dict[str, object] = plain(spec.description())
    packed = replace(
        spec,
        train_function=serialize(spec.train_function, f"the training function `{name}`"),
        train_config=serialize(spec.train_config, "`train_loop_config`"),
        datasets=serialize(spec.datasets, "`datasets`") if spec.datasets else {},
        described=described,
        code_version=code_version(spec.train_function)
        if callable(spec.train_function)
        else spec.code_version,
    )
    return serialize(packed, "the run's configuration")


def _actor_name(storage: StorageContext) -> str:
    return discovery.run_actor_name(
        storage.storage_filesystem.type_name,
        storage.experiment_fs_path,
        storage.experiment_dir_name,
    )


def _start_or_find(storage: StorageContext, spec: SerializedValue, program: str) -> ActorHandle:
    # On the node of the program: if that node dies, the program dies too. Not `soft`, as Ray would
    # then use any node, and the death of that node would cost the run its controller.
    here = NodeAffinitySchedulingStrategy(get_runtime_context().get_node_id(), soft=False)
    options = remote(RunActor).options(
        name=_actor_name(storage),
        namespace=RUN_ACTOR_NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=0,
        max_concurrency=CONCURRENCY,
        scheduling_strategy=here,
    )
    actor: ActorHandle = options.remote(spec, program, storage.experiment_fs_path)
    return actor


def _followed(actor: ActorHandle, program: str, display: Display) -> Ended:
    """Display the events of a run; return its end.

    Raises:
        _RunEnded: The outcome was fetched before.
        KeyboardInterrupt: The program was interrupted; the run is aborted.
    """
    try:
        events = _events(actor, program, snapshots=display.takes_snapshots)
        return _displayed(events, program, display)
    except KeyboardInterrupt:
        _abort(actor)
        raise


def _events(actor: ActorHandle, program: str, *, snapshots: bool) -> Iterator[StreamEvent]:
    """Yield the events of a run; reconnect after interruptions of the connection."""
    after = 0
    while True:
        try:
            for ref in actor.follow.remote(program, after, snapshots):
                for event in api.get(ref):
                    if isinstance(event, Line):
                        after = event.number
                    elif isinstance(event, Ended):
                        api.get(actor.confirm.remote(program))
                    yield event
        except ActorUnavailableError:
            time.sleep(POLL_S)


def _displayed(events: Iterator[StreamEvent], program: str, display: Display) -> Ended:
    is_first = True
    for event in events:
        if isinstance(event, Attached):
            if event.fetched:
                raise _RunEnded
            if is_first and event.starter != program:
                display.print_event(f"syncline: attached to the run in progress in {event.path}")
            is_first = False
        elif isinstance(event, Line):
            (display.print_status if event.is_status else display.print_event)(event.text)
        elif isinstance(event, SnapshotTaken):
            display.show(event.snapshot)
        elif isinstance(event, Ended):
            return event
    raise AssertionError("an event stream ends with `Ended` or raises")


def _result(ended: Ended) -> Result:
    """Return the result, or raise the error of the run."""
    if ended.aborted:
        raise TrainingFailedError(
            "An attached program aborted the run (Ctrl-C). Its checkpoints are kept: `fit()` with "
            "the same name continues it."
        )
    if ended.error is not None:
        raise unpack_error(ended.error)
    assert ended.result is not None
    result: Result = pickle.loads(ended.result)
    value = ended.return_value
    return replace(result, return_value=pickle.loads(value) if value is not None else None)


def _abort(actor: ActorHandle) -> None:
    """Abort a run. After a second interrupt or at the limit, its actor is killed."""
    try:
        actor.abort.remote()
        api.get(actor.wait_until_ended.remote(ABORT_LIMIT_S), timeout=ABORT_LIMIT_S)
    except (RayActorError, GetTimeoutError):
        return
    finally:
        api.kill(actor)


def _wait_until_gone(storage: StorageContext, actor: ActorHandle) -> None:
    """Wait until the actor of an ended run has exited; kill it if that takes too long."""
    name, began = _actor_name(storage), time.monotonic()
    while name in _actor_names() and time.monotonic() < began + NAME_LIMIT_S:
        if time.monotonic() > began + EXIT_LIMIT_S:
            api.kill(actor)
        time.sleep(POLL_S)


def _actor_names() -> list[str]:
    """Return the names of the actors of all runs in progress."""
    if not api.is_initialized() and settings.address() is None:
        return []
    engine = ensure_engine()
    if not engine.outlives_driver:
        return []
    return [
        name
        for namespace, name in engine.list_named_actors(all_namespaces=True)
        if namespace == RUN_ACTOR_NAMESPACE and name.count(":") >= 2
    ]


def _storage_of(
    run: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None
) -> StorageContext:
    """Return the storage of a run directory; a plain name is below the default storage path."""
    text = os.fspath(run)
    if storage_filesystem is None and "/" not in text and not os.path.isdir(text):
        text = directories.join(settings.storage_path(), text)
    filesystem, directory = directories.resolve(text, storage_filesystem)
    parent, _, name = directory.rpartition("/")
    return StorageContext(parent or "/", name, filesystem)


def _recorded(storage: StorageContext) -> Result:
    """Return the result of a run that is not in progress."""
    path, filesystem = storage.experiment_fs_path, storage.storage_filesystem
    record = RunRecord(ArrowFiles(filesystem, path))
    if not directories.is_directory(filesystem, path) or not record.exists():
        raise ValueError(
            f"No run {storage.experiment_dir_name!r} is in progress on this cluster, and {path!r} "
            "is not a run directory. Pass the run directory (`storage_path`/`name` of its "
            "RunConfig), and connect to its cluster with `syncline.init(address=…)`."
        )
    outcome = record.outcome() or {}
    if outcome.get("status") == "finished":
        return Result.from_path(path, filesystem)
    if outcome.get("status") == "errored":
        raise TrainingFailedError(str(outcome.get("error")))
    raise TrainingFailedError(
        f"The run in {path!r} is not in progress on this cluster and has not finished: it was "
        "interrupted. `fit()` with the same `storage_path` and `name` continues it from its last "
        "checkpoint."
    )
