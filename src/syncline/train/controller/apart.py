"""The program's side of a run whose controller is an actor: start it or find it, show what it
tells, bring its result home.

Ctrl-C in an attached program ends the run; a program that dies, or loses its connection, does not.
"""

from __future__ import annotations

import os
import pickle
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.core import api
from syncline.core.context import get_runtime_context
from syncline.core.error_frames import unpack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.core.remote import ActorHandle, remote
from syncline.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from syncline.runs import RunRecord
from syncline.runs.values import plain
from syncline.train import filesystem as directories
from syncline.train.config import FailureConfig
from syncline.train.console.display import Display, display_for
from syncline.train.controller.policy import FUTILE_CONTROLLER_FAILURES
from syncline.train.controller.run_actor import (
    CONCURRENCY,
    NAMESPACE,
    RunActor,
    place_of,
    run_actor_name,
)
from syncline.train.controller.story import Attached, Ended, Line, Picture, Told
from syncline.train.errors import ControllerError, TrainingFailedError
from syncline.train.result import Result
from syncline.train.storage import ArrowFiles, StorageContext
from syncline.train.workers.shipped import Shipped, ship
from syncline.train.workers.spec import RunSpec

LEAVE_LIMIT_S = 5.0
"""How long an actor that has nothing more to do may take to leave before it is killed."""
ABORT_LIMIT_S = 15.0
"""How long a run that is ended by Ctrl-C may take to end before its controller is killed."""
NAME_LIMIT_S = 30.0
"""How long the name of an actor that has ended may stay taken."""
POLL_S = 0.05


class _Over(Exception):
    """The actor that was found belongs to a run that is over and fetched."""


def outlives_this_program() -> bool:
    """Whether a run's controller belongs into an actor: on a cluster, but for trainings inside
    tasks and actors, which end with these.
    """
    engine = ensure_engine()
    return engine.outlives_driver and engine.facts().task_id is None


def run_apart(spec: RunSpec) -> Result:
    """`fit()` on an engine whose actors outlive the program. A run that is under way already is
    attached to, whoever started it.

    Raises:
        TrainingFailedError, ValueError, TypeError: As the controller does.
        KeyboardInterrupt: The program was interrupted; the run has ended.
    """
    with display_for(spec.run_config) as display:
        return _run_apart(spec, display)


def _run_apart(spec: RunSpec, display: Display) -> Result:
    storage = StorageContext.from_run_config(spec.run_config)
    shipped = _ship_spec(spec)
    limit = (spec.run_config.failure_config or FailureConfig()).controller_failure_limit
    limit = FUTILE_CONTROLLER_FAILURES if limit < 0 else limit
    failures = 0
    while True:
        program = secrets.token_hex(8)
        actor = _start_or_find(storage, shipped, program)
        try:
            return _outcome(_followed(actor, program, display))
        except _Over:
            _wait_until_gone(storage, actor)
        except RayActorError as error:
            failures += 1
            if failures > limit:
                raise ControllerError(error) from None
            display.say(
                f"syncline: the controller of {storage.experiment_dir_name} was lost, another one goes on ({error})"
            )
            _wait_until_gone(storage, actor)


def attach(
    run: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None = None
) -> Result:
    """Wait for a run that another program has started on the cluster, and show what it tells; its
    result when it ends.

    A run that has ended is read from its directory, its `return_value` is not known then. Ctrl-C
    ends the run.

    Args:
        run: The run directory (`storage_path`/`name`), or the name of a run that is under way.
        storage_filesystem: The filesystem that the directory is on; found from it if not given.

    Raises:
        ValueError: No such run is under way, and there is no directory of one; or several under way
        have this name. TrainingFailedError: The run has failed; otherwise, it was broken off, and
        `fit()` with the same name would continue it.
    """
    storage = _storage_of(run, storage_filesystem)
    parts = {name: name.split(":", 2) for name in _names_under_way()}
    found = [name for name, (_, place, _) in parts.items() if place == place_of(storage)]
    found = found or [
        name for name, (_, _, run_name) in parts.items() if run_name == os.fspath(run)
    ]
    if len(found) > 1:
        raise ValueError(
            f"{len(found)} runs under way have the name {run!r}, in different places: give the directory of the one you mean."
        )
    if not found:
        return _recorded(storage)
    try:
        with display_for() as display:
            return _outcome(
                _followed(api.get_actor(found[0], NAMESPACE), secrets.token_hex(8), display)
            )
    except (_Over, RayActorError):
        return _recorded(storage)


def _ship_spec(spec: RunSpec) -> Shipped:
    name = getattr(spec.train_function, "__name__", repr(spec.train_function))
    described: dict[str, Any] = plain(spec.description())
    packed = replace(
        spec,
        train_function=ship(spec.train_function, f"the training function `{name}`"),
        train_config=ship(spec.train_config, "`train_loop_config`"),
        datasets=ship(spec.datasets, "`datasets`") if spec.datasets else {},
        described=described,
    )
    return ship(packed, "the run's configuration")


def _start_or_find(storage: StorageContext, spec: Shipped, program: str) -> ActorHandle:
    # Beside the program: where its node dies, the program has died too, so nothing more is lost
    # than without an actor. Not `soft`, with which Ray takes any node, and each of them would be
    # one more whose death costs the run its controller.
    here = NodeAffinitySchedulingStrategy(get_runtime_context().get_node_id(), soft=False)
    options = remote(RunActor).options(
        name=run_actor_name(storage),
        namespace=NAMESPACE,
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
    """Show what a run tells, to its end. `_Over` where that was fetched before, KeyboardInterrupt
    after having ended the run.
    """
    try:
        return _end_of(_told(actor, program, pictures=display.takes_snapshots), program, display)
    except KeyboardInterrupt:
        _abort(actor)
        raise


def _told(actor: ActorHandle, program: str, *, pictures: bool) -> Iterator[Told]:
    """Everything that the run tells; over interruptions of the connection."""
    after = 0
    while True:
        try:
            for ref in actor.follow.remote(program, after, pictures):
                for told in api.get(ref):
                    if isinstance(told, Line):
                        after = told.number
                    elif isinstance(told, Ended):
                        api.get(actor.confirm.remote(program))
                    yield told
        except ActorUnavailableError:
            time.sleep(POLL_S)


def _end_of(story: Iterator[Told], program: str, display: Display) -> Ended:
    first = True
    for told in story:
        if isinstance(told, Attached):
            if told.fetched:
                raise _Over
            if first and told.starter != program:
                display.say(f"syncline: attached to the run that is under way in {told.path}")
            first = False
        elif isinstance(told, Line):
            (display.outline if told.is_outline else display.say)(told.text)
        elif isinstance(told, Picture):
            display.show(told.snapshot)
        elif isinstance(told, Ended):
            return told
    raise AssertionError("a story has an end, or raises")


def _outcome(ended: Ended) -> Result:
    """The result, or what the run ended with raised."""
    if ended.aborted:
        raise TrainingFailedError(
            "the run was ended by a program that was attached to it (Ctrl-C). It has its checkpoints: `fit()` with the same name goes on."
        )
    if ended.error is not None:
        raise unpack_error(ended.error)
    assert ended.result is not None
    result: Result = pickle.loads(ended.result)
    return replace(
        result,
        return_value=pickle.loads(ended.return_value) if ended.return_value is not None else None,
    )


def _abort(actor: ActorHandle) -> None:
    """End a run; a second interrupt, or the limit, kills its controller."""
    try:
        actor.abort.remote()
        api.get(actor.wait_until_ended.remote(ABORT_LIMIT_S), timeout=ABORT_LIMIT_S)
    except (RayActorError, GetTimeoutError):
        return
    finally:
        api.kill(actor)


def _wait_until_gone(storage: StorageContext, actor: ActorHandle) -> None:
    """Wait until the actor of a run that is over has left, and help it where that takes long."""
    name, began = run_actor_name(storage), time.monotonic()
    while name in _names_under_way() and time.monotonic() < began + NAME_LIMIT_S:
        if time.monotonic() > began + LEAVE_LIMIT_S:
            api.kill(actor)
        time.sleep(POLL_S)


def _names_under_way() -> list[str]:
    """Names of the actors of all runs under way."""
    if not api.is_initialized() and settings.address() is None:
        return []
    engine = ensure_engine()
    if not engine.outlives_driver:
        return []
    return [
        name
        for namespace, name in engine.list_named_actors(all_namespaces=True)
        if namespace == NAMESPACE and name.count(":") >= 2
    ]


def _storage_of(
    run: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None
) -> StorageContext:
    """The place of a run directory; a bare name is one under the default storage path."""
    text = os.fspath(run)
    if storage_filesystem is None and "/" not in text and not os.path.isdir(text):
        text = directories.join(settings.storage_path(), text)
    filesystem, directory = directories.resolve(text, storage_filesystem)
    parent, _, name = directory.rpartition("/")
    return StorageContext(parent or "/", name, filesystem)


def _recorded(storage: StorageContext) -> Result:
    """The result of a run that is not under way."""
    record = RunRecord(ArrowFiles(storage.storage_filesystem, storage.experiment_fs_path))
    if (
        not directories.is_directory(storage.storage_filesystem, storage.experiment_fs_path)
        or not record.exists()
    ):
        raise ValueError(
            f"no run {storage.experiment_dir_name!r} is under way on this cluster, and {storage.experiment_fs_path!r} is not the directory "
            "of one: give the run directory (`storage_path`/`name` of its RunConfig), and `syncline.init(address=…)` its cluster."
        )
    outcome = record.outcome() or {}
    if outcome.get("status") == "finished":
        return Result.from_path(storage.experiment_fs_path, storage.storage_filesystem)
    if outcome.get("status") == "errored":
        raise TrainingFailedError(str(outcome.get("error")))
    raise TrainingFailedError(
        f"the run in {storage.experiment_fs_path!r} is not under way on this cluster and has not finished: it was broken off. "
        "`fit()` with the same `storage_path` and `name` continues it from its last checkpoint."
    )
