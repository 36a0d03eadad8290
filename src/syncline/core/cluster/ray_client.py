"""The engine through Ray Client, for a program on a machine that is not a node of the cluster.

A program on the head executes the requests: each takes a round trip, and values travel through the
head. Ray Client has no generators, so a relay actor on the cluster runs each and returns its items
on request.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from ray._private.ray_constants import RAY_RUNTIME_ENV_URI_PIN_EXPIRATION_S_ENV_VAR as PIN_VARIABLE
from ray.client_builder import ClientBuilder

from syncline.core.cluster import compatibility, handles, ray_options, ray_workers
from syncline.core.cluster.engine import ClusterEngine, Result
from syncline.core.cluster.handles import RayObject
from syncline.core.cluster.head import Head
from syncline.core.cluster.ray_workers import Enter
from syncline.core.config import EngineConfig
from syncline.core.definitions import CallDefinition, TaskDefinition
from syncline.core.engine import Args, Kwargs, Submitted, current_engine
from syncline.core.options import Keywords
from syncline.core.refs import AnyGenerator, AnyRef, Hold, ObjectRefGenerator, Waitable

_GROUP = "concurrency_group"
ATTEMPTS = 3
"""Connection attempts: on a busy head, the fork that starts this program's server may fail."""
_FORK_FAILED = re.compile("Starting Ray client server failed|ZombieProcess")
POLL_S = 0.05
"""Seconds between checks of references that a program waits for together with generators."""
_RELAY_CONCURRENCY = 4
"""Concurrent calls of one relay: the next item, the end, and cancellations."""


class ClientEngine(ClusterEngine):
    """See `Engine`. Tasks and actors on the cluster replace what Ray Client lacks."""

    @cached_property
    def session_directory(self) -> Path:
        """A directory of this machine; the cluster's own is not reachable."""
        return Path(tempfile.mkdtemp(prefix="syncline-client-"))

    def submit_task(self, definition: TaskDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        options = definition.options
        if options.num_returns != "streaming":
            return super().submit_task(definition, args, kwargs)
        if options.placement_group is None:
            self._check_demand(options.resources_needed(), options, f"the task {definition.name}")
        return self._relayed(definition, None, args, kwargs)

    def submit_call(self, definition: CallDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        if definition.options.num_returns != "streaming":
            return super().submit_call(definition, args, kwargs)
        unprepared = replace(definition)
        return self._relayed(unprepared, self.hold_actor(definition.actor_id), args, kwargs)

    def get(self, refs: Sequence[AnyRef], timeout_s: float | None) -> list[Any]:
        try:
            return super().get(refs, timeout_s)
        except ModuleNotFoundError as error:
            raise _with_remedy(error) from None

    def wait(
        self,
        refs: Sequence[Waitable],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[Waitable], list[Waitable]]:
        streams = [ref for ref in refs if isinstance(ref, ObjectRefGenerator)]
        values = [ref for ref in refs if not isinstance(ref, ObjectRefGenerator)]
        check = partial(super().wait, fetch_local=fetch_local)
        if not streams:
            return check(refs, num_returns=num_returns, timeout_s=timeout_s)
        arrived: set[int] = set()
        for stream in streams:
            stream.when_next(partial(arrived.add, stream.id))
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if values:
                found, _ = check(values, num_returns=len(values), timeout_s=0)
                arrived.update(ref.id for ref in found)
            left_s = POLL_S if deadline is None else deadline - time.monotonic()
            if len(arrived) >= num_returns or left_s <= 0:
                break
            time.sleep(min(POLL_S, left_s))
        ready = [ref for ref in refs if ref.id in arrived][:num_returns]
        chosen = {ref.id for ref in ready}
        return ready, [ref for ref in refs if ref.id not in chosen]

    def cancel(self, ref: AnyRef | AnyGenerator, *, force: bool, recursive: bool) -> None:
        stream = handles.find(ref.id)
        if isinstance(stream, RelayedGenerator):
            stream.cancel(force=force, recursive=recursive)
        else:
            super().cancel(ref, force=force, recursive=recursive)

    def _state(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Run the function in a task on the cluster."""
        ref = ray.remote(num_cpus=0)(function).remote(*arguments)
        return ray.get(ref)  # type: ignore[no-any-return]

    def _submitter(
        self, method: RayObject, keywords: Keywords
    ) -> Callable[[list[object], Kwargs], RayObject]:
        known = {name: value for name, value in keywords.items() if name != _GROUP}
        if len(known) == len(keywords):
            return super()._submitter(method, keywords)
        # Ray Client itself rejects this option, but the program on the head accepts it.
        chosen = method.options(**known)
        chosen._options[_GROUP] = keywords[_GROUP]
        return lambda args, kwargs: chosen.remote(*args, **kwargs)

    def _submission_error(
        self, error: Exception, args: Args, kwargs: Kwargs, name: str
    ) -> BaseException:
        if isinstance(error, ModuleNotFoundError):
            return _with_remedy(error)
        return super()._submission_error(error, args, kwargs, name)

    def _relayed(
        self,
        definition: TaskDefinition | CallDefinition,
        callee: Hold | None,
        args: Args,
        kwargs: Kwargs,
    ) -> Submitted:
        call = RelayedCall(
            enter=self._enter, definition=definition, callee=callee, args=args, kwargs=kwargs
        )
        try:
            generator = RelayedGenerator(call)
        except Exception as error:
            raise self._submission_error(error, args, kwargs, definition.name) from None
        return handles.stream(generator, secrets.randbits(128))


# -- generators through a relay


@dataclass(frozen=True, kw_only=True)
class RelayedCall:
    """A call that a relay makes."""

    enter: Enter
    definition: TaskDefinition | CallDefinition
    callee: Hold | None
    """Keeps the actor of a method call alive."""
    args: Args
    kwargs: Kwargs


class Relay:
    """Actor on the cluster that owns one generator; the generator ends with it."""

    def __init__(self, call: RelayedCall) -> None:
        call.enter(type(self))
        self._callee = call.callee
        engine, definition = current_engine(), call.definition
        submitted = (
            engine.submit_task(definition, call.args, call.kwargs)
            if isinstance(definition, TaskDefinition)
            else engine.submit_call(definition, call.args, call.kwargs)
        )
        assert isinstance(submitted, ObjectRefGenerator)
        self._generator: AnyGenerator = submitted

    def next(self) -> tuple[AnyRef] | None:
        """Return the reference to the next item in a tuple; None at the end."""
        item = next(self._generator, None)
        return None if item is None else (item,)

    def completed(self) -> None:
        """Wait for the end, and raise the generator's error, if any."""
        current_engine().get([self._generator.completed()], None)

    def cancel(self, force: bool, recursive: bool) -> None:
        """Cancel the task or call."""
        current_engine().cancel(self._generator, force=force, recursive=recursive)


class RelayedGenerator:
    """The program's side of a relay, with the methods of Ray's generators."""

    def __init__(self, call: RelayedCall) -> None:
        relay_class = ray.remote(Relay).options(num_cpus=0, max_concurrency=_RELAY_CONCURRENCY)
        self._relay = relay_class.remote(call)
        self._completed: RayObject = None
        self._requested: RayObject = None

    def completed(self) -> RayObject:
        """Return Ray's reference to the end."""
        if self._completed is None:
            self._completed = self._relay.completed.remote()
        return self._completed

    def cancel(self, *, force: bool, recursive: bool) -> None:
        """Cancel the call."""
        ray.get(self._relay.cancel.remote(force, recursive))

    def _next_sync(self, timeout_s: float | None) -> RayObject:
        """Return Ray's reference to the next item, nil on timeout; StopIteration at the end."""
        if self._requested is None:
            self._requested = self._relay.next.remote()
        try:
            item = ray.get(self._requested, timeout=timeout_s)
        except ray.exceptions.GetTimeoutError:
            return ray.ObjectRef.nil()
        self._requested = None
        if item is None:
            raise StopIteration
        return item[0].ray

    async def __anext__(self) -> RayObject:
        item = await asyncio.to_thread(self._next_or_none)
        if item is None:
            raise StopAsyncIteration
        return item

    def _next_or_none(self) -> RayObject:
        try:
            return self._next_sync(None)
        except StopIteration:
            return None


# -- connecting


def connect(head: Head, config: EngineConfig) -> None:
    """Connect this process to the cluster.

    Raises ModuleNotFoundError without gRPC for Python, RuntimeError if versions differ.
    """
    if importlib.util.find_spec("grpc") is None:
        raise ModuleNotFoundError(
            f"`address={head.address!r}` is Ray Client's, which needs gRPC for Python, but gRPC is "
            f'not installed: run `pip install "ray[client]"`, send the program to the cluster with '
            f"`syncline submit`, or run it on a node of the cluster, with `address='auto'`.",
            name="grpc",
        )
    ray_workers.clear_caches()
    try:
        _connect(head, config)
    except Exception as error:
        raise _connection_error(head, error) from None
    # Ray Client's server cannot answer this request of a connected program, which would repeat it
    # for ever.
    os.environ[PIN_VARIABLE] = "0"


def disconnect() -> None:
    """Disconnect this process."""
    ray.shutdown()
    os.environ.pop(PIN_VARIABLE, None)
    ray_workers.clear_caches()


def _connect(head: Head, config: EngineConfig) -> None:
    for remaining in reversed(range(ATTEMPTS)):
        try:
            _builder(head, config).connect()
            return
        except Exception as error:
            if remaining == 0 or _FORK_FAILED.search(str(error)) is None:
                raise


def _builder(head: Head, config: EngineConfig) -> ClientBuilder:
    builder = ClientBuilder(f"{head.host}:{head.port}")
    builder._deprecation_warn_enabled = False
    for key, value in compatibility.job_metadata().items():
        builder._job_config.set_metadata(key, value)
    builder._init_args(**ray_options.connection_options(config))
    return builder


def _connection_error(head: Head, error: Exception) -> Exception:
    if "ersion mismatch" in str(error):
        return RuntimeError(
            f"the cluster at {head.address!r} and this program have different versions, so they "
            f"cannot exchange code and values. {str(error).strip()} Install the cluster's versions "
            f"here, or start the cluster with this program's versions."
        )
    return ConnectionError(
        f"Ray Client answers at {head.address!r}, but could not start the program on the cluster's "
        f"head that executes requests: {str(error).strip()} If this persists, send the program to "
        f"the cluster with `syncline submit`."
    )


def _with_remedy(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Add the remedy for a module that this program has and the head lacks."""
    if error.name is None or importlib.util.find_spec(error.name.partition(".")[0]) is None:
        return error
    return ModuleNotFoundError(
        f"the cluster's head cannot import {error.name!r}: over Ray Client, it unpickles this "
        f"program's functions and values. Install the module on the cluster, or send it along, "
        f"with `init(runtime_env={{'working_dir': '.'}})` for files next to the program, or "
        f"'py_modules'.",
        name=error.name,
    )
