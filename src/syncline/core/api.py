"""Functions of the public API: objects, cancellation, named actors, resources and listings.

Each checks its arguments and calls the engine once. `remote`, `init` and the runtime context are in
modules of their own and re-exported here for the packages above core.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, cast, overload

from syncline.core import engine as engines
from syncline.core.context import RuntimeContext, get_runtime_context
from syncline.core.engine import LISTED, ActorListing, Row, TaskListing
from syncline.core.error_messages import NotAReferenceError
from syncline.core.lifecycle import InitContext, ensure_engine, init, is_initialized, shutdown
from syncline.core.refs import AnyGenerator, AnyRef, ObjectRef, ObjectRefGenerator, Waitable
from syncline.core.remote import ActorClass, ActorHandle, RemoteFunction, method, remote
from syncline.core.tracebacks import forget_engine
from syncline.suggestions import DIRECT_TRANSPORT

__all__ = [
    "ActorClass",
    "ActorHandle",
    "InitContext",
    "ObjectRef",
    "ObjectRefGenerator",
    "RemoteFunction",
    "RuntimeContext",
    "actors",
    "available_resources",
    "cancel",
    "cluster_resources",
    "ensure_engine",
    "exit_actor",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "tasks",
    "timeline",
    "wait",
]

T = TypeVar("T")
W = TypeVar("W", bound=Waitable)

_TRANSPORTS = (None, "object_store", "OBJECT_STORE")
"""Values of Ray's option `_tensor_transport` without an effect."""


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None) -> T: ...
@overload
def get(refs: Sequence[ObjectRef[T]], *, timeout: float | None = None) -> list[T]: ...
@overload
def get(refs: ObjectRefGenerator[T], *, timeout: float | None = None) -> ObjectRefGenerator[T]: ...
def get(
    refs: ObjectRef[T] | Sequence[ObjectRef[T]] | ObjectRefGenerator[T],
    *,
    timeout: float | None = None,
    **_ignored: object,
) -> T | list[T] | ObjectRefGenerator[T]:
    """Wait for the value of a reference, or for the values of a list of references.

    A generator is returned as it is: iterate over it. Arrays in the value are read-only, because
    other processes read the same memory.

    Raises the task's error (also a `RayTaskError`), GetTimeoutError after `timeout` seconds, and
    an error that is both TypeError and ValueError for anything that is not a reference.
    """
    try:
        _check_timeout(timeout)
        if isinstance(refs, ObjectRef):
            value: T = (engines.current or ensure_engine()).get((refs,), timeout)[0]
            return value
        if isinstance(refs, ObjectRefGenerator):
            return refs
        _check_references("get", refs)
        return (engines.current or ensure_engine()).get(refs, timeout) if refs else []
    except BaseException as error:
        forget_engine(error)
        raise


def put(value: T, **_ignored: object) -> ObjectRef[T]:
    """Store a copy of `value` and return a reference to it.

    Raises TypeError for a reference, and for a value that cannot be pickled; ValueError for a
    `_tensor_transport` between GPUs.
    """
    try:
        if _ignored and _ignored.get("_tensor_transport") not in _TRANSPORTS:
            raise ValueError(
                f"`_tensor_transport={_ignored['_tensor_transport']!r}` is not supported. "
                f"{DIRECT_TRANSPORT}"
            )
        if isinstance(value, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(
                f"`put` got {value!r}, which is already a reference: pass it on as it is, "
                f"or put a list around it to store the reference"
            )
        return (engines.current or ensure_engine()).put(value)
    except BaseException as error:
        forget_engine(error)
        raise


def wait(
    refs: Sequence[W],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[W], list[W]]:
    """Wait until `num_returns` references have a value or an error; return (ready, not ready).

    Returns earlier after `timeout` seconds. The first list has at most `num_returns` references;
    both keep the order of `refs`. A generator is ready when it has a next item or has ended. Raises
    TypeError if `refs` is not a list of references and generators, and ValueError for duplicates
    and for an impossible `num_returns`.
    """
    try:
        _check_timeout(timeout)
        if isinstance(refs, ObjectRef):
            raise TypeError("`wait` got a single reference, but takes a list: write `wait([ref])`")
        _check_references("wait", refs, generators=True)
        if not refs:
            return [], []
        if len(set(refs)) < len(refs):
            raise ValueError(
                f"`wait` got {len(refs)} references, but only {len(set(refs))} different ones: "
                f"leave out those given twice"
            )
        if isinstance(num_returns, bool) or not isinstance(num_returns, int):
            raise TypeError(
                f"`num_returns={num_returns!r}` is a {type(num_returns).__name__}: give an integer"
            )
        if not 1 <= num_returns <= len(refs):
            raise ValueError(
                f"`num_returns={num_returns}` is impossible for {len(refs)} references: "
                f"give 1 to {len(refs)}"
            )
        engine = engines.current or ensure_engine()
        ready, rest = engine.wait(
            refs, num_returns=num_returns, timeout_s=timeout, fetch_local=fetch_local
        )
        return cast("list[W]", ready), cast("list[W]", rest)
    except BaseException as error:
        forget_engine(error)
        raise


def cancel(ref: AnyRef | AnyGenerator, *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the task of a reference; getting it then raises TaskCancelledError.

    A task that has finished keeps its value. A running task gets KeyboardInterrupt, a method of an
    async actor CancelledError; with `force` the worker process is killed. With `recursive`, tasks
    that the task submitted are cancelled too. Raises TypeError if `ref` is not a reference.
    """
    try:
        if not isinstance(ref, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(
                f"`cancel` got a {type(ref).__name__} ({ref!r}): "
                f"pass the reference that `.remote()` returned"
            )
        ensure_engine().cancel(ref, force=force, recursive=recursive)
    except BaseException as error:
        forget_engine(error)
        raise


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Kill an actor's process now; with `no_restart=False` the actor may restart.

    Raises an error that is both TypeError and ValueError if `actor` is not an actor handle.
    """
    try:
        if not isinstance(actor, ActorHandle):
            raise NotAReferenceError(
                f"`kill` got a {type(actor).__name__} ({actor!r}), but takes actors only: "
                f"pass an actor's handle, or `cancel` a task"
            )
        ensure_engine().kill(actor._syncline_record.actor_id, no_restart=no_restart)
    except BaseException as error:
        forget_engine(error)
        raise


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """Return the handle of the living actor with this name.

    Raises ValueError that lists the existing names if there is no such actor.
    """
    try:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"`get_actor` got the name {name!r}: "
                f"pass the name that `.options(name=...)` gave the actor"
            )
        return ActorHandle(*ensure_engine().named_actor(name, namespace))
    except BaseException as error:
        forget_engine(error)
        raise


def exit_actor() -> None:
    """Exit the calling actor after this call, without a restart; RuntimeError outside an actor."""
    ensure_engine().exit_actor()


def get_gpu_ids() -> list[int | str]:
    """Return the GPUs of the calling task or actor: indices as integers, else UUIDs."""
    gpu_ids = ensure_engine().runtime_info().gpu_ids
    return [int(gpu) if gpu.isdecimal() else gpu for gpu in gpu_ids]


def nodes() -> list[Row]:
    """Return one dict per node with Ray's fields, such as NodeID, Alive and Resources."""
    return ensure_engine().nodes()


def cluster_resources() -> dict[str, float]:
    """Return the total amount of each resource."""
    return ensure_engine().cluster_resources()


def available_resources() -> dict[str, float]:
    """Return the free amount of each resource."""
    return ensure_engine().available_resources()


def actors(limit: int = LISTED) -> ActorListing:
    """List the pending and living actors of all programs on this engine, at most `limit`."""
    return ensure_engine().actors(limit)


def tasks(limit: int = LISTED) -> TaskListing:
    """List the unfinished tasks and calls: counts by name and state, and those that run.

    Each of the two lists has at most `limit` entries.
    """
    return ensure_engine().tasks(limit)


def timeline(filename: str | Path | None = None) -> list[Row] | None:
    """Return what ran where and when, as Chrome trace events.

    With `filename`, write them to a JSON file for chrome://tracing or Perfetto and return None.
    """
    events = ensure_engine().timeline()
    if filename is None:
        return events
    Path(filename).write_text(json.dumps(events), encoding="utf-8")
    return None


def _check_timeout(timeout: float | None) -> None:
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(
            f"`timeout={timeout!r}` is a {type(timeout).__name__}: "
            f"give seconds, or None to wait without a limit"
        )
    if not timeout >= 0:
        raise ValueError(
            f"`timeout={timeout}` is negative: "
            f"give 0 or more seconds, or None to wait without a limit"
        )


def _check_references(what: str, refs: object, *, generators: bool = False) -> None:
    if not isinstance(refs, (list, tuple)):
        raise NotAReferenceError(
            _not_a_reference(what, refs, "a reference or a list of references")
        )
    for position, ref in enumerate(refs):
        if not (isinstance(ref, ObjectRef) or (generators and isinstance(ref, ObjectRefGenerator))):
            raise NotAReferenceError(
                f"{_not_a_reference(what, ref, 'references')} (It is number {position} of the "
                f"list.)"
            )


def _not_a_reference(what: str, value: object, wanted: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    if isinstance(value, ActorHandle):
        remedy = "call a method of the actor with `.remote()`, and pass the result"
    elif isinstance(value, ObjectRefGenerator):
        remedy = "pass `next(generator)` for its next value, or `generator.completed()` for its end"
    elif hasattr(value, "remote"):
        remedy = "call `.remote(...)` on it, and pass the result"
    elif isinstance(value, (dict, set)) or hasattr(value, "__next__"):
        remedy = "pass a list of the references in it"
    else:
        remedy = (
            "a value in this process needs no `get`"
            if what == "get"
            else "pass what `.remote()` or `put` returned"
        )
    return f"`{what}` got a {type(value).__name__} ({shown}), but takes {wanted}: {remedy}."
