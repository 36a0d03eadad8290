"""What programs call, and the packages above core: `remote`, `init` and the context, which have
modules of their own, and here what works on references, actors and the machine: checks of the
arguments, and one call of the engine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from syncline.core import refs as references
from syncline.core.context import RuntimeContext, get_runtime_context
from syncline.core.engine import LISTED, ActorListing, TaskListing
from syncline.core.errors import NotAReferenceError
from syncline.core.lifecycle import InitContext, ensure_engine, init, is_initialized, shutdown
from syncline.core.refs import ObjectRef, ObjectRefGenerator
from syncline.core.remote import ActorClass, ActorHandle, RemoteFunction, method, remote
from syncline.core.tracebacks import forget_engine

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


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None) -> T: ...
@overload
def get(refs: Sequence[ObjectRef[T]], *, timeout: float | None = None) -> list[T]: ...
@overload
def get(refs: ObjectRefGenerator[T], *, timeout: float | None = None) -> ObjectRefGenerator[T]: ...
def get(refs: Any, *, timeout: float | None = None, **_ignored: Any) -> Any:
    """The value of a reference, or the values of a list of them, waited for. A generator is given
    back as it is: iterate over it.

    Arrays in the value are read-only: they lie in memory that others read too. Raises what the task
    raised (also a `RayTaskError`), GetTimeoutError after `timeout` seconds, and both TypeError and
    ValueError for what is no reference.
    """
    try:
        _check_timeout(timeout)
        if isinstance(refs, ObjectRef):
            return (references._engine or ensure_engine()).get((refs,), timeout)[0]
        if isinstance(refs, ObjectRefGenerator):
            return refs
        _check_references("get", refs)
        return (references._engine or ensure_engine()).get(refs, timeout) if refs else []
    except BaseException as error:
        forget_engine(error)
        raise


def put(value: Any, **_ignored: Any) -> ObjectRef[Any]:
    """Keep a copy of `value` as it is now, and return a reference to it. TypeError for a reference,
    or what cannot be pickled.
    """
    try:
        if isinstance(value, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(
                f"`put` got {value!r}, which is a reference already: pass it on as it is, or put a list around it to store the reference"
            )
        return (references._engine or ensure_engine()).put(value)
    except BaseException as error:
        forget_engine(error)
        raise


def wait(
    refs: Sequence[ObjectRef[T]],
    *,
    num_returns: int = 1,
    timeout: float | None = None,
    fetch_local: bool = True,
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """(ready, not ready): waits until `num_returns` references have a value or an error, or
    `timeout` seconds passed.

    At most `num_returns` are in the first list; both are in the order of `refs`. Raises TypeError
    for what is no list of references, ValueError for one that is in it twice and for a
    `num_returns` that does not fit.
    """
    try:
        _check_timeout(timeout)
        if isinstance(refs, ObjectRef):
            raise TypeError(
                "`wait` got a single reference, but waits for lists: write `wait([ref])`"
            )
        _check_references("wait", refs)
        if not refs:
            return [], []
        if len(set(refs)) < len(refs):
            raise ValueError(
                f"`wait` got {len(refs)} references, but only {len(set(refs))} different ones: leave out those given twice"
            )
        if isinstance(num_returns, bool) or not isinstance(num_returns, int):
            raise TypeError(
                f"`num_returns={num_returns!r}` is a {type(num_returns).__name__}: give an integer"
            )
        if not 1 <= num_returns <= len(refs):
            raise ValueError(
                f"`num_returns={num_returns}` of {len(refs)} references cannot be waited for: give 1 to {len(refs)}"
            )
        engine = references._engine or ensure_engine()
        return engine.wait(
            refs, num_returns=num_returns, timeout_s=timeout, fetch_local=fetch_local
        )
    except BaseException as error:
        forget_engine(error)
        raise


def cancel(
    ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool = False, recursive: bool = True
) -> None:
    """Cancel the task behind a reference; getting it raises TaskCancelledError then, unless it had
    ended.

    A running task gets KeyboardInterrupt (a method of an async actor CancelledError); with `force`
    its process is killed. `recursive`: what it submitted is cancelled too. Raises TypeError for
    what is no reference.
    """
    try:
        if not isinstance(ref, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(
                f"`cancel` got a {type(ref).__name__} ({ref!r}): pass the reference that `.remote()` returned"
            )
        ensure_engine().cancel(ref, force=force, recursive=recursive)
    except BaseException as error:
        forget_engine(error)
        raise


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """End an actor's process at once; without `no_restart` it may come back. Both TypeError and
    ValueError for what is no actor.
    """
    try:
        if not isinstance(actor, ActorHandle):
            raise NotAReferenceError(
                f"`kill` got a {type(actor).__name__} ({actor!r}), and ends actors only: pass an actor's handle, or `cancel` a task"
            )
        ensure_engine().kill(actor._syncline_record.actor_id, no_restart=no_restart)
    except BaseException as error:
        forget_engine(error)
        raise


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """The handle of the living actor with this name. ValueError with the names that exist where
    there is none.
    """
    try:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"`get_actor` got the name {name!r}: pass the name that `.options(name=...)` gave the actor"
            )
        return ActorHandle(*ensure_engine().named_actor(name, namespace))
    except BaseException as error:
        forget_engine(error)
        raise


def exit_actor() -> None:
    """Inside an actor: end it, without a restart, once this call ends. RuntimeError elsewhere."""
    ensure_engine().exit_actor()


def get_gpu_ids() -> list[int | str]:
    """The GPUs that the calling task or actor holds: numbers where they have numbers, else their
    names.
    """
    return [int(gpu) if gpu.isdecimal() else gpu for gpu in ensure_engine().facts().gpu_ids]


def nodes() -> list[dict[str, Any]]:
    """One dict for each machine, with Ray's fields, among them NodeID, Alive and Resources."""
    return ensure_engine().nodes()


def cluster_resources() -> dict[str, float]:
    """Everything there is, by resource."""
    return ensure_engine().cluster_resources()


def available_resources() -> dict[str, float]:
    """What is free now, by resource."""
    return ensure_engine().available_resources()


def actors(limit: int = LISTED) -> ActorListing:
    """The actors that live or are to live, of every program on this engine; at most `limit` are
    named.
    """
    return ensure_engine().actors(limit)


def tasks(limit: int = LISTED) -> TaskListing:
    """The tasks and calls that have not ended: counted by name and state, and those that run; at
    most `limit` of each are named.
    """
    return ensure_engine().tasks(limit)


def timeline(filename: str | Path | None = None) -> list[dict[str, Any]] | None:
    """What ran where and when, as Chrome trace events: returned, or written to `filename` for
    chrome://tracing or Perfetto.
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
            f"`timeout={timeout!r}` is a {type(timeout).__name__}: give seconds, or None to wait without end"
        )
    if not timeout >= 0:
        raise ValueError(
            f"`timeout={timeout}` has passed already: give 0 or more seconds, or None to wait without end"
        )


def _check_references(what: str, refs: Any) -> None:
    if not isinstance(refs, (list, tuple)):
        raise NotAReferenceError(
            _not_a_reference(what, refs, "a reference or a list of references")
        )
    for position, ref in enumerate(refs):
        if not isinstance(ref, ObjectRef):
            raise NotAReferenceError(
                f"{_not_a_reference(what, ref, 'references')} (It is number {position} of the list.)"
            )


def _not_a_reference(what: str, value: Any, wanted: str) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    if isinstance(value, ActorHandle):
        remedy = "call a method of the actor with `.remote()`, and pass what that returns"
    elif isinstance(value, ObjectRefGenerator):
        remedy = "pass `next(generator)` for its next value, or `generator.completed()` for its end"
    elif hasattr(value, "remote"):
        remedy = "call `.remote(...)` on it, and pass what that returns"
    elif isinstance(value, (dict, set)) or hasattr(value, "__next__"):
        remedy = "pass a list of the references in it"
    else:
        remedy = (
            "a value that is here already needs no `get`"
            if what == "get"
            else "pass what `.remote()` or `put` returned"
        )
    return f"`{what}` got a {type(value).__name__} ({shown}), but takes {wanted}: {remedy}."
