"""Whose code runs now, and in which environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from syncline import settings
from syncline.core import runtime_env


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the code of a task or a call may ask about itself."""

    task_id: int
    task_name: str
    actor_id: int | None = None
    actor_name: str | None = None
    was_restarted: bool = False
    placement_group_id: int | None = None
    captures_child_tasks: bool = False
    """Whether what it submits runs in its placement group too."""
    resources: Mapping[str, float] = field(default_factory=dict)
    gpu_ids: tuple[str, ...] = ()
    runtime_env: Mapping[str, Any] = field(default_factory=dict)


_now: ContextVar[Surroundings | None] = ContextVar("syncline_inline_surroundings", default=None)


def now() -> Surroundings | None:
    """Of the calling code; None for the program itself."""
    return _now.get()


@contextmanager
def running_as(surroundings: Surroundings) -> Iterator[None]:
    """Code in the block is that of a task or a call."""
    token = _now.set(surroundings)
    try:
        yield
    finally:
        _now.reset(token)


@contextmanager
def environment_of(normal: Mapping[str, Any]) -> Iterator[None]:
    """Code in the block sees the runtime environment `normal`; afterwards variables, directory and
    module path are as before.

    Modules that were imported meanwhile stay imported: this is one process.
    """
    if not normal:
        yield
        return
    variables, directory, path = settings.inherited_environment(), os.getcwd(), list(sys.path)
    try:
        runtime_env.apply(normal)
        yield
    finally:
        for name in normal.get("env_vars", {}):
            if name in variables:
                os.environ[name] = variables[name]
            else:
                os.environ.pop(name, None)
        if os.getcwd() != directory:
            os.chdir(directory)
        sys.path[:] = path
