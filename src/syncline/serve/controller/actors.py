"""`ServeActors`: creates and ends the actors of replicas and proxies, through `core.api`.

Calls of the engine may wait for other machines, so they all run in order in one thread, which posts
results to the event loop. An actor's `run` call ends with its process or after its work. A
restarted controller attaches to the actors by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial
from typing import Any, Protocol

from syncline.core.api import ActorHandle, ensure_engine, get_actor, remote
from syncline.core.api import kill as kill_actor
from syncline.core.labels import alternatives, check_machine
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy
from syncline.records import dataclass
from syncline.serve.controller.process import NAMESPACE

logger = logging.getLogger("syncline.serve")

EXIT_S = 3.0
"""Seconds for the process of an actor to exit after its `run` call has returned."""
_LONGEST_CAUSE = 2000


class ActorEvents(Protocol):
    """Receives the events of actors by their names, on the event loop."""

    def on_actor_placed(self, name: str) -> None:
        """The process exists."""

    def on_actor_refused(self, name: str, reason: str) -> None:
        """The actor can never start."""

    def on_actor_ended(self, name: str, cause: str) -> None:
        """The process has ended; `cause` is empty after an orderly exit."""


@dataclass(frozen=True, kw_only=True)
class GroupStart:
    """A placement group to create, with the first of the actors that run in it."""

    name: str
    bundles: tuple[Mapping[str, float], ...]
    strategy: str
    label_selectors: tuple[Mapping[str, str], ...] = ()
    """Labels that the node of each bundle must have; empty: any node."""


@dataclass(frozen=True, kw_only=True)
class ActorStart:
    """An actor to create."""

    name: str
    cls: type
    options: Mapping[str, Any]
    config: object
    """Argument of `run`."""
    group: GroupStart | None = None
    """Placement group of the actor, possibly shared; None: no placement group."""
    bundle: int = 0
    """Index of its bundle in the group."""


@dataclass(slots=True, eq=False)
class _Actor:
    handle: ActorHandle | None = None
    group: str | None = None
    """Name of its placement group, possibly shared; None: no placement group."""
    is_ended: bool = False
    killed: bool = field(default=False)


class ServeActors:
    """Actors in serve's namespace. Used on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, events: ActorEvents) -> None:
        self._loop = loop
        self._events = events
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="serve-engine")
        self._actors: dict[str, _Actor] = {}
        self._classes: dict[type, Any] = {}
        self._groups: dict[str, PlacementGroup] = {}  # used in the engine's thread

    def start(self, start: ActorStart) -> None:
        """Create an actor and call its `run`."""
        group = None if start.group is None else start.group.name
        actor = self._actors[start.name] = _Actor(group=group)
        self._thread.submit(self._guarded, partial(self._create, start, actor))

    def attach(self, name: str, group: str | None = None) -> None:
        """Watch an actor that an earlier controller created; it may have ended.

        `group` is the name of its placement group.
        """
        actor = self._actors[name] = _Actor(group=group)
        self._thread.submit(self._guarded, partial(self._attach, name, actor))

    def kill(self, name: str) -> None:
        """Kill the process of an actor."""
        actor = self._actors.get(name)
        if actor is not None:
            actor.killed = True
            self._thread.submit(self._guarded, partial(self._kill, actor))

    def kill_unknown(self, prefix: str, known: Iterable[str] = ()) -> None:
        """Kill actors whose names begin with `prefix`, except watched and `known` ones."""

        def kill(name: str) -> None:
            logger.warning("Killing actor %s, which is unknown to the controller.", name)
            kill_actor(get_actor(name, NAMESPACE))

        self._find_unknown(prefix, kill, known)

    def find_unknown(self, prefix: str, found: Callable[[str], None]) -> None:
        """Call `found` on the loop with the names of actors that are not watched."""
        self._find_unknown(prefix, partial(self.post, found), ())

    def _find_unknown(
        self, prefix: str, found: Callable[[str], None], known: Iterable[str]
    ) -> None:
        known = {*self._actors, *known}

        def find() -> None:
            for namespace, name in ensure_engine().list_named_actors(all_namespaces=True):
                if namespace == NAMESPACE and name.startswith(prefix) and name not in known:
                    found(name)

        self._thread.submit(self._guarded, find)

    def submit(self, action: Callable[[], None]) -> None:
        """Call `action` in the engine's thread; its errors are logged."""
        self._thread.submit(self._guarded, action)

    def post(self, action: Callable[..., None], *args: object) -> None:
        """Call `action` on the loop, unless it has ended. For any thread."""
        try:
            self._loop.call_soon_threadsafe(action, *args)
        except RuntimeError:
            pass  # the loop has ended

    def ask(self, question: Callable[[], object], answer: Callable[[Any], None]) -> None:
        """Call `question` in the engine's thread, then `answer` on the loop."""

        def run() -> None:
            self.post(answer, question())

        self._thread.submit(self._guarded, run)

    def stack_of(self, name: str) -> str:
        """Return the stacks of the threads of an actor's process. For `ask`."""
        actor = self._actors.get(name)
        if actor is None or actor.handle is None:
            return "its process does not exist"
        stack = ensure_engine().stack_of(actor.handle._actor_id)
        return stack or "this engine cannot show its stack"

    def close(self) -> None:
        """Stop after the calls that were submitted."""
        self._thread.shutdown(wait=False)

    # -- in the engine's thread

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            logger.exception("A call of the engine failed")

    def _create(self, start: ActorStart, actor: _Actor) -> None:
        options = dict(start.options)
        try:
            _check_labels(options)
            if start.group is not None:
                options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                    self._group(start.group), start.bundle, True
                )
            cls = self._classes.get(start.cls)
            if cls is None:
                cls = self._classes[start.cls] = remote(start.cls)
            actor.handle = cls.options(
                name=start.name,
                namespace=NAMESPACE,
                lifetime="detached",
                max_restarts=0,
                max_task_retries=0,
                **options,
            ).remote()
        except Exception as error:
            self.post(self._refused, start.name, actor, f"{type(error).__name__}: {error}")
            return
        self._watch(start.name, actor, (start.config,), is_new=True)

    def _attach(self, name: str, actor: _Actor) -> None:
        try:
            actor.handle = get_actor(name, NAMESPACE)
        except ValueError:
            self.post(self._ended, name, actor, "its process ended while the controller was down")
            return
        self._watch(name, actor, (), is_new=False)

    def _watch(self, name: str, actor: _Actor, config: Sequence[object], *, is_new: bool) -> None:
        """Follow the actor's `run` call, which a new actor gets here."""
        handle, engine = actor.handle, ensure_engine()
        assert handle is not None
        if is_new:
            # Calls run in order: this one ends when the process exists and has imported its code.
            engine.on_value(handle.ping.remote(), partial(self._on_ping, name, actor))
            engine.on_value(handle.run.remote(*config), partial(self._on_run, name, actor))
        else:  # and this one, after `run`
            engine.on_value(handle.ping.remote(), partial(self._on_run, name, actor))

    def _kill(self, actor: _Actor) -> None:
        if actor.handle is not None:
            ensure_engine().kill(actor.handle._actor_id, no_restart=True)

    def _terminate(self, name: str, actor: _Actor) -> None:
        """Let the process exit, so that it runs its exit handlers."""
        assert actor.handle is not None
        terminated = actor.handle.__ray_terminate__.remote()
        ensure_engine().on_value(terminated, partial(self._on_exit, name, actor))

    def _group(self, start: GroupStart) -> PlacementGroup:
        """Return the placement group, which the first of its actors creates."""
        group = self._groups.get(start.name)
        if group is None:
            bundles = [dict(bundle) for bundle in start.bundles]
            id = ensure_engine().create_placement_group(
                bundles,
                strategy=start.strategy,
                name=start.name,
                detached=True,
                label_selectors=start.label_selectors,
            )
            group = self._groups[start.name] = PlacementGroup(id, bundles)
        return group

    def _remove_group(self, name: str) -> None:
        self._groups.pop(name, None)
        engine = ensure_engine()
        for row in engine.placement_groups():
            if row["name"] == name and row["state"] != "REMOVED":
                engine.remove_placement_group(row["id"])

    # -- callbacks of the engine, on any of its threads

    def _on_ping(self, name: str, actor: _Actor, _: object, error: BaseException | None) -> None:
        if error is None:
            self.post(self._placed, name, actor)

    def _on_run(self, name: str, actor: _Actor, _: object, error: BaseException | None) -> None:
        self.post(self._run_ended, name, actor, "" if error is None else _cause(error), error)

    def _on_exit(self, name: str, actor: _Actor, *_: object) -> None:
        self.post(self._ended, name, actor, "")

    # -- on the loop

    def _placed(self, name: str, actor: _Actor) -> None:
        if not actor.is_ended:
            self._events.on_actor_placed(name)

    def _refused(self, name: str, actor: _Actor, reason: str) -> None:
        self._forget(name, actor)
        self._events.on_actor_refused(name, reason)

    def _run_ended(self, name: str, actor: _Actor, cause: str, error: BaseException | None) -> None:
        if error is not None:
            self._ended(name, actor, cause)
            return
        self._thread.submit(self._guarded, partial(self._terminate, name, actor))
        self._loop.call_later(EXIT_S, self._kill_late, name, actor)

    def _kill_late(self, name: str, actor: _Actor) -> None:
        if not actor.is_ended:
            self._thread.submit(self._guarded, partial(self._kill, actor))
            self._ended(name, actor, "")

    def _ended(self, name: str, actor: _Actor, cause: str) -> None:
        if actor.is_ended:
            return
        self._forget(name, actor)
        self._thread.submit(self._guarded, partial(self._kill, actor))  # after an error of `run`
        self._events.on_actor_ended(name, cause)

    def _forget(self, name: str, actor: _Actor) -> None:
        """Remove an actor, and its placement group if no other actor uses it."""
        actor.is_ended = True
        self._actors.pop(name, None)
        group = actor.group
        if group is not None and all(each.group != group for each in self._actors.values()):
            self._thread.submit(self._guarded, partial(self._remove_group, group))


def _check_labels(options: Mapping[str, Any]) -> None:
    """Raise ValueError for labels that this machine does not have; Ray checks those of clusters."""
    engine = ensure_engine()
    selector = options.get("label_selector")
    if selector and not engine.outlives_driver:
        selectors = alternatives(selector, options.get("fallback_strategy") or ())
        check_machine(engine.nodes(), selectors, "a replica")


def _cause(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE]}..."


def is_lacking(needed: Mapping[str, float], free: Mapping[str, float]) -> bool:
    """Return True if a needed resource is not free."""
    return any(free.get(name, 0.0) < amount for name, amount in needed.items())


def available_text(needed: Mapping[str, float], free: Mapping[str, float]) -> str:
    """Return the needed and the free resources of a start, as text."""
    wants = ", ".join(f"{name} {amount:g}" for name, amount in needed.items())
    has = ", ".join(f"{name} {free.get(name, 0):g}" for name in needed)
    return f"it needs {wants or 'a process'}; available: {has or 'unknown'}"
