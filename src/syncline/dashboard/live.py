"""What a run answers while it goes on: `reach(run)` finds its program, and `LiveRun` asks it.

A program of this user on this machine is asked through its control socket (`core.control`), a run
on a cluster through its actor, from any machine that can connect to the cluster. Used by pages and
commands alike; loads no web framework.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline import settings
from syncline.core import api, control
from syncline.core.control import ActionFailed, NobodyAnswers, Program
from syncline.runs import Run

__all__ = ["ActionFailed", "LiveRun", "NobodyAnswers", "reach"]

Ask = Callable[[str, Mapping[str, Any], float], Any]
"""`ask(action, arguments, timeout_s)`; raises NobodyAnswers and ActionFailed."""

ANSWER_S = 10.0
"""How long an answer may take that needs no worker."""
STACKS_S = 20.0
"""How long stacks may take: workers that do not answer are looked at from outside."""
_BUCKETS = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "az"})
PROFILE_DEFAULT_S = 120.0
PROFILE_BESIDES_S = 240.0
"""A profile ends within its own time and this: the worker has limits of its own, and says what was
too slow.
"""


class LiveRun:
    """A run that goes on. Any thread may ask; asking blocks.

    Every method raises NobodyAnswers where the program has ended or does not answer, and
    ActionFailed with cause and remedy where it answered with an error.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def members(self) -> list[dict[str, Any]]:
        """The workers of a training (`rank`, `pid`, `hostname`, `node_ip`, `gpu_ids`, …), or the
        trials of a search.
        """
        return list(self._ask("workers", {}, ANSWER_S))

    def stacks(self, ranks: Sequence[int | str] | None = None) -> dict[str, str]:
        """Where members stand, as Python prints stacks, by rank or trial: all of them, or these."""
        found = self._ask("stacks", {"ranks": None if ranks is None else list(ranks)}, STACKS_S)
        return {str(member): str(stack) for member, stack in found.items()}

    def profile(
        self, member: int | str, kind: str, seconds: float | None = None, steps: int | None = None
    ) -> str:
        """Record a profile; it returns when that is there.

        Args:
            member: Rank, or trial. kind: "cpu" (py-spy's flame graph), "memory" (memray's), "torch"
            (a trace of the next steps for Perfetto). seconds: How long to look; of a torch trace,
            how long to wait for its steps. steps: Of a torch trace.

        Returns:
            The file, relative to the run directory, such as
            `profiles/20261122-101500-rank-0-cpu.svg`.
        """
        arguments = {"rank": member, "kind": kind, "seconds": seconds, "steps": steps}
        limit_s = (PROFILE_DEFAULT_S if seconds is None else seconds) + PROFILE_BESIDES_S
        return str(self._ask("profile", arguments, limit_s)["file"])


def reach(run: Run, address: str | None = None) -> LiveRun | None:
    """The running side of a run; None where its program is not to be found: it has ended, or is
    another user's or another machine's.

    Args:
        run: Its record.
        address: A cluster to look on, too, if this process is connected to none yet.
    """
    program = _program(run)
    if program is not None:
        subject = _subject(program, run.path) or f"run:{run.path}"
        return LiveRun(
            lambda action, arguments, timeout_s: control.ask(
                program, subject, action, arguments, timeout_s
            )
        )
    if address is None and settings.address() is None and not api.is_initialized():
        return None
    # Loads much, which who looks at this machine alone does not need.
    ask: Ask | None = importlib.import_module("syncline.dashboard.cluster_runs").asking(
        run.path, address
    )
    return None if ask is None else LiveRun(ask)


def _program(run: Run) -> Program | None:
    """The program of this machine that answers for the run, or that wrote its record and is too
    busy to say what it answers for.
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
    """What the program calls the run in the directory, or at the URI, if it answers for it."""
    for subject in program.subjects or ():
        what, _, place = subject.partition(":")
        if what == "run" and _same_place(place, path):
            return subject
    return None


def _same_place(place: str, path: str) -> bool:
    if (
        "://" in path
    ):  # a program calls it by the path on its filesystem: s3://bucket/runs/a is bucket/runs/a, hdfs://host/runs/a /runs/a
        scheme, _, rest = path.partition("://")
        whole = rest.split("?")[0].strip("/")
        if scheme in _BUCKETS:  # a directory of this machine may have the name of one in a bucket
            return place == whole
        return place.strip("/") in (whole, whole.partition("/")[2])
    return place == path or os.path.realpath(place) == os.path.realpath(path)
