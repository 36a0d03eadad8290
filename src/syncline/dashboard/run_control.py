"""Requests to the controller of a running run: `reach(run)` finds it, and `LiveRun` sends requests.

A program of this user on this machine is reached through its control socket (`core.control`), a run
on a cluster through the actor of its controller, from any machine that can connect to the cluster.
Used by pages and commands; independent of the web framework.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from syncline import settings
from syncline.core import api, control
from syncline.core.control import ActionFailed, Program, ProgramUnreachable
from syncline.core.lifecycle import ensure_engine, init_quietly
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.runs import Run
from syncline.runs.discovery import RUN_ACTOR_NAMESPACE, run_actor_name
from syncline.runs.json_values import JsonObject, Record
from syncline.storage.filesystem import join, resolve

logger = logging.getLogger("syncline")

__all__ = ["ActionFailed", "LiveRun", "ProgramUnreachable", "reach"]

Ask = Callable[[str, Record, float], Any]
"""`ask(action, arguments, timeout_s)`; raises ProgramUnreachable and ActionFailed."""

ANSWER_S = 10.0
"""Seconds for answers that need no worker."""
STACKS_S = 20.0
"""Seconds for stacks; workers that do not answer are inspected from outside."""
_BUCKETS = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "az"})
PROFILE_DEFAULT_S = 120.0
PROFILE_BESIDES_S = 240.0
"""Seconds for a profile beyond its own duration. The worker has shorter limits and reports which
step was too slow.
"""


class LiveRun:
    """Client of a running run. Thread-safe; calls block.

    Every method raises ProgramUnreachable if the program has ended or does not answer, and
    ActionFailed if it answered with an error.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def members(self) -> list[JsonObject]:
        """Return the workers of a training (`rank`, `pid`, `hostname`, `node_ip`, `gpu_ids`, …) or
        the trials of a search.
        """
        return list(self._ask("workers", {}, ANSWER_S))

    def stacks(self, ranks: Sequence[int | str] | None = None) -> dict[str, str]:
        """Return Python stacks by rank or trial: of all members, or of `ranks`."""
        found = self._ask("stacks", {"ranks": None if ranks is None else list(ranks)}, STACKS_S)
        return {str(member): str(stack) for member, stack in found.items()}

    def diagnosis(self) -> JsonObject:
        """Return the verdict on the ranks, their recent collective calls, and the share of the time
        that the others wait for each; empty for runs that are not diagnosed.
        """
        try:
            return dict(self._ask("diagnosis", {}, ANSWER_S))
        except ActionFailed:
            return {}

    def profile(
        self, member: int | str, kind: str, seconds: float | None = None, steps: int | None = None
    ) -> str:
        """Record a profile; return when it is complete.

        Args:
            member: Rank or trial ID.
            kind: "cpu" (py-spy flame graph), "memory" (memray report), or "torch" (Perfetto trace
                of the next steps).
            seconds: Duration; for a torch trace, seconds to wait for its steps.
            steps: Number of steps of a torch trace.

        Returns:
            Path relative to the run directory, such as
            `profiles/20261122-101500-rank-0-cpu.svg`.
        """
        arguments = {"rank": member, "kind": kind, "seconds": seconds, "steps": steps}
        limit_s = (PROFILE_DEFAULT_S if seconds is None else seconds) + PROFILE_BESIDES_S
        return str(self._ask("profile", arguments, limit_s)["file"])

    def stop(self) -> None:
        """Ask the run to end, as Ctrl-C in its program does; return without waiting for the end.
        Checkpoints are kept, and the run gets the state `aborted`.
        """
        self._ask("stop", {}, ANSWER_S)


def reach(run: Run, address: str | None = None) -> LiveRun | None:
    """Return a client of a running run; None if its program is not found because it has ended or
    belongs to another user or machine.

    Args:
        run: Record of the run.
        address: Cluster to search if this process is not connected to one.
    """
    program = _program(run)
    if program is not None:
        subject = _subject(program, run.path) or f"run:{run.path}"
        return LiveRun(
            lambda action, arguments, timeout_s: control.request(
                program, subject, action, arguments, timeout_s
            )
        )
    if address is None and settings.address() is None and not api.is_initialized():
        return None
    ask = _ask_on_cluster(run.path, address)
    return None if ask is None else LiveRun(ask)


def _program(run: Run) -> Program | None:
    """Return the program of this machine that controls the run, or one that wrote the record and is
    too busy to answer.
    """
    programs = control.programs()
    speaking = next(
        (program for program in programs if _subject(program, run.path) is not None), None
    )
    if speaking is not None:
        return speaking
    pid = run.environment.get("pid")
    return next(
        (program for program in programs if program.subjects is None and program.pid == pid), None
    )


def _subject(program: Program, path: str) -> str | None:
    """Return the program's name for the run at a path or URI; None if it does not control it."""
    for subject in program.subjects or ():
        what, _, place = subject.partition(":")
        if what == "run" and _same_place(place, path):
            return subject
    return None


def _same_place(place: str, path: str) -> bool:
    # A program uses the path on its filesystem: bucket/runs/a for s3://bucket/runs/a, and /runs/a
    # for hdfs://host/runs/a.
    if "://" in path:
        scheme, _, rest = path.partition("://")
        host, separator, inside = rest.split("?")[0].partition("/")
        whole = (host.rpartition("@")[2] + separator + inside).strip("/")
        if scheme in _BUCKETS:  # a local directory may have the same path as one in a bucket
            return place == whole
        return place.strip("/") in (whole, whole.partition("/")[2])
    return place == path or os.path.realpath(place) == os.path.realpath(path)


def _ask_on_cluster(path: str, address: str | None) -> Ask | None:
    """Return a function that sends requests to a run on a cluster; None if no cluster is reachable
    or the run is not running on it.

    Connects this process to the cluster at `address`, by default that of the environment, unless it
    is connected already.
    """
    if not _connected(address):
        return None
    parent, _, name = path.rstrip("/").rpartition("/")
    try:
        filesystem, storage_path = resolve(parent or "/")
        actor_name = run_actor_name(filesystem.type_name, join(storage_path, name), name)
        actor = api.get_actor(actor_name, RUN_ACTOR_NAMESPACE)
    except ValueError:
        return None

    def ask(action: str, arguments: Record, timeout_s: float) -> Any:
        try:
            return api.get(actor.ask.remote(action, dict(arguments)), timeout=timeout_s)
        except RayTaskError as error:
            raise ActionFailed(str(error.cause or error), type(error.cause).__name__) from error
        except RayActorError as error:
            raise ProgramUnreachable(
                f"The run {name!r} is no longer running on the cluster: {error}"
            ) from error
        except GetTimeoutError:
            raise ProgramUnreachable(
                f"The run {name!r} did not answer within {timeout_s:g} s: its controller is "
                "busy or disconnected."
            ) from None

    return ask


def _connected(address: str | None) -> bool:
    if not api.is_initialized():
        address = address or settings.address()
        if address is None:
            return False
        try:
            init_quietly(address)
        except ConnectionError as error:
            logger.warning(
                "Cannot reach the cluster at %s, so its runs cannot be inspected: %s",
                address,
                error,
            )
            return False
    return ensure_engine().outlives_driver
