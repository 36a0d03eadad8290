"""`DeploymentActorDriver`: creates, watches and ends the actors of deployments, through `core.api`.

The controller imports no user code: a task in the deployment's environment unpickles the class,
creates the detached actor, and waits for its constructor. Then the actor is pinged every second;
pings are queued behind the actor's other calls and fail when the actor dies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from syncline.core import serialization
from syncline.core.api import (
    ActorHandle,
    available_resources,
    ensure_engine,
    get,
    get_actor,
    remote,
)
from syncline.core.api import kill as kill_actor
from syncline.core.remote import ActorClass
from syncline.core.tracebacks import user_traceback
from syncline.exceptions import ActorUnavailableError, RayError
from syncline.serve.controller.actors import ServeActors, available_text, is_lacking
from syncline.serve.controller.events import (
    DeploymentActorEnded,
    DeploymentActorFailed,
    DeploymentActorInspected,
    DeploymentActorReady,
    InspectDeploymentActor,
    StartDeploymentActor,
)
from syncline.serve.controller.process import NAMESPACE
from syncline.serve.wire.deployment_actor_names import PREFIX

PING_S = 1.0
"""Seconds between pings of an actor."""

DeploymentActorEvent = (
    DeploymentActorReady | DeploymentActorFailed | DeploymentActorInspected | DeploymentActorEnded
)


def create_actor(name: str, packed: bytes, options: Mapping[str, object]) -> tuple[str, bool]:
    """Create an actor and wait for its constructor. Runs as a task.

    Args:
        name: Name in serve's namespace.
        packed: The pickled tuple (class, args, kwargs).
        options: Options of the actor.

    Returns:
        The traceback of a failure, or an empty text; and True if no attempt can succeed.
    """
    try:
        cls, args, kwargs = serialization.unpack(packed)
        actor_class = cls if isinstance(cls, ActorClass) else remote(cls)
        actor = actor_class.options(
            **options, name=name, namespace=NAMESPACE, lifetime="detached", get_if_exists=True
        ).remote(*args, **kwargs)
    except Exception as error:
        return user_traceback(error).rstrip(), isinstance(error, (TypeError, ValueError))
    try:
        get(actor.__ray_ready__.remote())
    except RayError as error:
        with contextlib.suppress(Exception):
            kill_actor(actor)
        return str(error), False
    return "", False


@dataclass(slots=True, eq=False)
class _Entry:
    handle: ActorHandle | None = None
    is_killed: bool = False
    is_ended: bool = False


class DeploymentActorDriver:
    """Actors of deployments, by their names. Used on the loop's thread.

    Args:
        loop: Event loop of the controller.
        actors: Its thread calls the engine.
        handle: Called on the loop with an event.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        actors: ServeActors,
        handle: Callable[[DeploymentActorEvent], None],
    ) -> None:
        self._loop = loop
        self._actors = actors
        self._handle = handle
        self._entries: dict[str, _Entry] = {}
        self._create: Any = None

    def start(self, step: StartDeploymentActor) -> None:
        """Create an actor; `DeploymentActorReady` or `DeploymentActorFailed` follows."""
        entry = self._entries[step.actor_id] = _Entry()
        self._actors.submit(partial(self._submit_creation, step, entry))

    def attach(self, name: str) -> None:
        """Watch an actor that an earlier controller created; it may have ended."""
        entry = self._entries[name] = _Entry()
        self._actors.submit(partial(self._find, name, entry))

    def kill(self, name: str) -> None:
        """Kill an actor, which may still be starting; `DeploymentActorEnded` follows."""
        entry = self._entries.get(name)
        if entry is None:
            self._loop.call_soon(self._handle, DeploymentActorEnded(actor_id=name, cause=""))
            return
        entry.is_killed = True
        self._actors.submit(partial(self._kill, name, entry))

    def inspect(self, step: InspectDeploymentActor) -> None:
        """Check if an actor waits for resources; `DeploymentActorInspected` follows."""

        def look() -> DeploymentActorInspected:
            free = available_resources()
            has_process = any(
                row.name == step.actor_id and row.pid is not None
                for row in ensure_engine().actors().actors
            )
            return DeploymentActorInspected(
                actor_id=step.actor_id,
                lacks_resources=is_lacking(step.needed, free) and not has_process,
                text=available_text(step.needed, free),
            )

        self._actors.ask(look, self._handle)

    def kill_unknown(self) -> None:
        """Kill deployment actors that are not watched."""
        self._actors.kill_unknown(PREFIX, self._entries)

    # -- in the engine's thread

    def _submit_creation(self, step: StartDeploymentActor, entry: _Entry) -> None:
        options = dict(step.config.actor_options)
        env = options.get("runtime_env") or step.runtime_env
        if env:
            options["runtime_env"] = env
        if self._create is None:
            self._create = remote(create_actor).options(num_cpus=0, max_retries=0)
        create = self._create.options(runtime_env=env) if env else self._create
        try:
            created = create.remote(step.actor_id, step.config.actor_class, options)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._actors.post(self._failed, step.actor_id, entry, reason, True)
            return
        ensure_engine().on_value(created, partial(self._on_created, step.actor_id, entry))

    def _find(self, name: str, entry: _Entry) -> None:
        """Look up the handle, and watch the actor."""
        try:
            entry.handle = get_actor(name, NAMESPACE)
        except ValueError:
            self._actors.post(
                self._ended, name, entry, "its process ended before the controller saw it"
            )
            return
        if entry.is_killed:
            self._kill(name, entry)
        else:
            self._ping(name, entry)

    def _ping(self, name: str, entry: _Entry) -> None:
        assert entry.handle is not None
        alive = entry.handle.__ray_ready__.remote()
        ensure_engine().on_value(alive, partial(self._on_ping, name, entry))

    def _kill(self, name: str, entry: _Entry) -> None:
        if entry.handle is None:
            try:
                actor = get_actor(name, NAMESPACE)
            except ValueError:
                return  # it is killed after its creation
            kill_actor(actor)  # the task that created it notices
            return
        kill_actor(entry.handle)
        self._ping(name, entry)  # fails immediately instead of a second later

    # -- callbacks of the engine, on any of its threads

    def _on_created(
        self, name: str, entry: _Entry, result: Any, error: BaseException | None
    ) -> None:
        reason, is_final = (str(error), False) if error is not None else result
        if reason:
            self._actors.post(self._failed, name, entry, reason, is_final)
        else:
            self._actors.post(self._actors.submit, partial(self._find, name, entry))

    def _on_ping(self, name: str, entry: _Entry, _: object, error: BaseException | None) -> None:
        if error is None or isinstance(error, ActorUnavailableError):
            self._actors.post(self._lives, name, entry, error is None)
        else:
            self._actors.post(self._ended, name, entry, str(error))

    # -- on the loop

    def _lives(self, name: str, entry: _Entry, is_ready: bool) -> None:
        if entry.is_ended or entry.is_killed:
            return
        if is_ready:
            self._handle(DeploymentActorReady(actor_id=name))
        self._loop.call_later(PING_S, self._ping_again, name, entry)

    def _ping_again(self, name: str, entry: _Entry) -> None:
        if not entry.is_ended and not entry.is_killed:
            self._actors.submit(partial(self._ping, name, entry))

    def _failed(self, name: str, entry: _Entry, reason: str, is_final: bool) -> None:
        self._actors.submit(partial(self._kill, name, entry))  # the actor may outlive its task
        self._forget(name, entry)
        self._handle(DeploymentActorFailed(actor_id=name, reason=reason, is_final=is_final))

    def _ended(self, name: str, entry: _Entry, cause: str) -> None:
        if entry.is_ended:
            return
        self._forget(name, entry)
        self._handle(DeploymentActorEnded(actor_id=name, cause="" if entry.is_killed else cause))

    def _forget(self, name: str, entry: _Entry) -> None:
        entry.is_ended = True
        if self._entries.get(name) is entry:
            del self._entries[name]
