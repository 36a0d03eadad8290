"""The engine through Ray Client: for a program on a machine that is no node of the cluster, whose
requests a program on the head makes.

Each request takes a round trip, and values travel through the head.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
from ray._private.ray_constants import RAY_RUNTIME_ENV_URI_PIN_EXPIRATION_S_ENV_VAR as PIN_VARIABLE
from ray.client_builder import ClientBuilder

from syncline.core.cluster import actors, facts, handles, listings, tasks, timeline, versions
from syncline.core.cluster.engine import ClusterEngine
from syncline.core.cluster.head import Head
from syncline.core.cluster.relay import RelayedStream, relayed
from syncline.core.config import EngineConfig
from syncline.core.engine import LISTED, ActorListing, Submitted, TaskListing
from syncline.core.plans import CallPlan, TaskPlan
from syncline.core.refs import ObjectRef, ObjectRefGenerator

_GROUP = "concurrency_group"
ATTEMPTS = 3
"""How often to ask the head for a program that makes this one's requests: on a busy head the fork
that starts it goes wrong at times.
"""
_STILLBORN = re.compile("Starting Ray client server failed|ZombieProcess")


class ClientEngine(ClusterEngine):
    """See `Engine`. What Ray Client lacks is done by tasks and actors of ours on the cluster."""

    @cached_property
    def session_directory(self) -> Path:
        """A directory of this machine: the cluster's own is out of reach."""
        return Path(tempfile.mkdtemp(prefix="syncline-client-"))

    def submit_task(
        self, plan: TaskPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        if plan.options.num_returns != "streaming":
            return super().submit_task(plan, args, kwargs)
        if plan.options.placement_group is None:
            self._check_demand(
                plan.options.resources_needed(), plan.options, f"the task {plan.name}"
            )
        return self._relayed(plan, None, args, kwargs)

    def submit_call(
        self, plan: CallPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        if plan.options.num_returns != "streaming":
            return super().submit_call(plan, args, kwargs)
        unprepared = CallPlan(
            plan.actor_id, plan.class_name, plan.method, plan.options, plan.groups
        )
        return self._relayed(unprepared, self.hold_actor(plan.actor_id), args, kwargs)

    def get(self, refs: Sequence[ObjectRef[Any]], timeout_s: float | None) -> list[Any]:
        try:
            return super().get(refs, timeout_s)
        except ModuleNotFoundError as error:
            raise _explained(error) from None

    def cancel(
        self, ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool, recursive: bool
    ) -> None:
        stream = handles.find(ref.id)
        if isinstance(stream, RelayedStream):
            stream.cancel(force=force, recursive=recursive)
        else:
            super().cancel(ref, force=force, recursive=recursive)

    def draining_nodes(self) -> Mapping[str, float | None]:
        return dict(_there(facts.draining_nodes))

    def actors(self, limit: int = LISTED) -> ActorListing:
        return _there(listings.actors, limit)  # type: ignore[no-any-return]

    def tasks(self, limit: int = LISTED) -> TaskListing:
        return _there(listings.tasks, limit)  # type: ignore[no-any-return]

    def timeline(self) -> list[dict[str, Any]]:
        return list(_there(timeline.events))

    def _submitting(
        self, method: Any, keywords: Mapping[str, Any]
    ) -> Callable[[list[Any], dict[str, Any]], Any]:
        known = {name: value for name, value in keywords.items() if name != _GROUP}
        if len(known) == len(keywords):
            return super()._submitting(method, keywords)
        # Ray Client's own check refuses this option, which the program on the head takes.
        chosen = method.options(**known)
        chosen._options[_GROUP] = keywords[_GROUP]
        return lambda args, kwargs: chosen.remote(*args, **kwargs)

    def _refusal(
        self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> BaseException:
        if isinstance(error, ModuleNotFoundError):
            return _explained(error)
        return super()._refusal(error, args, kwargs, name)

    def _relayed(
        self, plan: TaskPlan | CallPlan, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        try:
            return relayed(plan, callee, args, kwargs)
        except Exception as error:
            raise self._refusal(error, args, kwargs, plan.name) from None


def connect(head: Head, config: EngineConfig) -> None:
    """Connect this process to the cluster. ModuleNotFoundError without gRPC for Python,
    RuntimeError where versions differ.
    """
    if importlib.util.find_spec("grpc") is None:
        raise ModuleNotFoundError(
            f"`address={head.address!r}` is Ray Client's, which needs gRPC for Python, and that is not installed here: run "
            f'`pip install "ray[client]"`, send the program to the cluster with `syncline submit`, or run it on a node of the cluster, '
            f"with `address='auto'`.",
            name="grpc",
        )
    # What Ray made of functions and classes for another connection is not known on this one.
    tasks.remote_function.cache_clear()
    actors.forget_classes()
    try:
        _connect(head, config)
    except Exception as error:
        raise _told(head, error) from None
    os.environ[PIN_VARIABLE] = (
        "0"  # asked by a program that is connected, Ray Client's server does not know how, and is asked for ever
    )


def disconnect() -> None:
    """End the connection."""
    ray.shutdown()
    os.environ.pop(PIN_VARIABLE, None)
    tasks.remote_function.cache_clear()
    actors.forget_classes()


def _connect(head: Head, config: EngineConfig) -> None:
    for rest in reversed(range(ATTEMPTS)):
        try:
            _builder(head, config).connect()
            return
        except Exception as error:
            if rest == 0 or _STILLBORN.search(str(error)) is None:
                raise


def _builder(head: Head, config: EngineConfig) -> ClientBuilder:
    builder = ClientBuilder(f"{head.host}:{head.port}")
    builder._deprecation_warn_enabled = False
    for key, value in versions.of_program().items():
        builder._job_config.set_metadata(key, value)
    builder._init_args(
        namespace=config.namespace or None,
        runtime_env=dict(config.runtime_env) or None,
        log_to_driver=config.log_to_driver,
        logging_level=logging.ERROR,
    )
    return builder


def _told(head: Head, error: Exception) -> Exception:
    """What to raise for an error of Ray's while it connects."""
    if "ersion mismatch" in str(error):
        return RuntimeError(
            f"the cluster at {head.address!r} and this program have different versions, so they cannot exchange code and values. "
            f"{str(error).strip()} Install the cluster's versions here, or start the cluster with those of this program."
        )
    return ConnectionError(
        f"Ray Client answers at {head.address!r}, but could not start the program on the cluster's head that makes this program's "
        f"requests: {str(error).strip()} Where this goes on, send the program to the cluster with `syncline submit`."
    )


def _explained(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """What to tell where the program on the head cannot import a module that this program has."""
    if error.name is None or importlib.util.find_spec(error.name.partition(".")[0]) is None:
        return error
    return ModuleNotFoundError(
        f"the cluster's head cannot import {error.name!r}: over Ray Client it unpickles this program's functions and values. Install the "
        f"module on the cluster, or send it along, with `init(runtime_env={{'working_dir': '.'}})` for files beside the program, or "
        f"'py_modules'.",
        name=error.name,
    )


def _there(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function says on the cluster."""
    return ray.get(ray.remote(num_cpus=0)(function).remote(*arguments))
