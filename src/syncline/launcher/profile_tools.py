"""Profiles of a worker. This module loads the trainers' package, so it is imported on request only.

The CPU profile is taken by py-spy from the launcher. Memory profiles and traces are taken inside:
the request goes to the worker's `worker_profiles`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from syncline.launcher import profile_signal
from syncline.runs.record_files import Files
from syncline.runs.run_directory import PROFILES_DIRECTORY
from syncline.train.workers.profiling import cpu_profile, memory_profile
from syncline.train.workers.profiling.profile_request import (
    ProfileError,
    ProfileKind,
    ProfileRequest,
)

_POLL_S = 0.1
_SLACK_S = 10.0


def take(rank: int, pid: int, files: Files, arguments: Mapping[str, object]) -> str:
    """Take a profile; return the path of its file in the run directory, which has these `files`.

    Raises:
        ValueError: Arguments that cannot be meant.
        ProfileError: The tool is missing, has no permission, or recorded nothing.
        OSError: The file cannot be written.
    """
    request = ProfileRequest.of(arguments)
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-rank-{rank}-{os.urandom(2).hex()}"
    name = f"{PROFILES_DIRECTORY}/{stem}-{request.ending}"
    with tempfile.TemporaryDirectory(prefix="syncline-profile-") as directory:
        target = Path(directory, f"profile-{request.ending}")
        if request.kind is ProfileKind.CPU:
            cpu_profile.record(request.seconds, request.afterwards_s, target, pid)
            problem = None
        else:
            problem = _ask(pid, request, target)
        files.write(name, target.read_bytes())
    if problem is not None:
        raise ProfileError(f"{problem}. The recorded part is in {name}")
    return name


def _ask(pid: int, request: ProfileRequest, target: Path) -> str | None:
    """Let the worker take a profile; return the reason if it is incomplete."""
    memory = profile_signal.memory_of(pid)
    if memory is None:
        raise ProfileError(
            "The worker offers no such profiles, because it runs no Python script of this "
            "interpreter, or has ended. Take a CPU profile instead"
        )
    reply = target.with_name("reply.json")
    arguments = {
        "kind": request.kind.value,
        "seconds": request.seconds,
        "steps": request.steps,
        "target": str(target),
        "reply": str(reply),
    }
    with memory.open("r+b") as file:
        file.truncate(0)
        file.write(json.dumps(arguments).encode())
    os.kill(pid, profile_signal.SIGNAL)
    deadline = time.monotonic() + request.answer_within_s + _SLACK_S
    while not reply.exists():
        if time.monotonic() > deadline or profile_signal.memory_of(pid) is None:
            raise ProfileError(
                "The worker returned no profile: it has ended, or waits in a call that runs no "
                "Python; `syncline stack` shows where"
            )
        time.sleep(_POLL_S)
    answer = json.loads(reply.read_text())
    if not target.exists():
        raise ProfileError(str(answer["problem"]))
    problem: str | None = answer["problem"]
    return problem


def record_here(arguments: Mapping[str, object], target: Path) -> str | None:
    """Take a memory profile or a trace of this process; return the reason if it is incomplete.

    Raises:
        ProfileError: There was nothing to record.
    """
    request = ProfileRequest.of(arguments)
    if request.kind is ProfileKind.MEMORY:
        memory_profile.record(request.seconds, request.afterwards_s, target)
        return None
    from syncline.train.workers.profiling import torch_trace  # loads torch

    return torch_trace.record(request.steps, request.seconds, target)
