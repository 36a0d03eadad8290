"""A fork server that starts before the engine, while the program still imports.

Programs that serve want their first answer soon. `import syncline.serve` starts the fork server,
which imports the modules of serve's processes while the program imports its own; the engine takes
it over. A program that starts no engine ends it by its own end. The fork server imports large
libraries at the same time as the program, before and after the start of the engine.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from syncline import settings
from syncline.core.embedded.fork_server_process import ForkServerProcess

MIRRORED = frozenset({"fastapi", "numpy", "pandas", "starlette", "torch", "transformers"})
"""Libraries that the fork server imports as soon as the program does."""


class _EarlyStart:
    """The fork server of this process that no engine uses yet."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._owner = _identity()
        self.fork_server = ForkServerProcess.start(modules)
        sys.meta_path.insert(0, _Mirror(self.fork_server))

    def is_current(self) -> bool:
        """Return True if a fork server that starts now would be the same."""
        return self._owner == _identity() and self.fork_server.process.poll() is None


class _Mirror:
    """A finder of modules that finds none, and notifies the fork server of large libraries."""

    def __init__(self, fork_server: ForkServerProcess) -> None:
        self._fork_server = fork_server

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None: other finders look for the module."""
        if name in MIRRORED and not self._fork_server.import_soon(name):
            sys.meta_path.remove(self)
        return None


_current: _EarlyStart | None = None
_is_allowed = True


def _is_child() -> bool:
    """Return True in a process of multiprocessing."""
    library = sys.modules.get("multiprocessing")
    return library is not None and library.parent_process() is not None


def _identity() -> tuple[object, ...]:
    """Return the data that a fork server inherits from the process that starts it."""
    return os.getpid(), os.getuid(), os.getgid(), settings.inherited_environment()


def disallow() -> None:
    """Start nothing early: for programs that mostly start no engine."""
    global _is_allowed
    _is_allowed = False


def allow() -> None:
    """Undo `disallow`."""
    global _is_allowed
    _is_allowed = True


def start(*modules: str) -> None:
    """Start a fork server that imports `modules`, unless this process will not start an engine.

    That holds for workers and their children, processes of multiprocessing, programs that use a
    cluster, and after `disallow`.
    """
    global _current
    uses_another = settings.session() is not None or settings.address() is not None or _is_child()
    if not _is_allowed or uses_another or settings.start_method() == "spawn":
        return
    if _current is None and "syncline.core.embedded.start" not in sys.modules:
        _current = _EarlyStart(modules)


def take() -> ForkServerProcess | None:
    """Return the fork server for an engine.

    Returns None if there is none, or if the environment of the program has changed since.
    """
    global _current
    early, _current = _current, None
    if early is None:
        return None
    if early.is_current():
        return early.fork_server
    early.fork_server.kill()
    return None


def _discard() -> None:
    fork_server = take()
    if fork_server is not None:
        fork_server.kill()


def _forget_in_child() -> None:
    """Close the connection in a forked child: the fork server ends with the program."""
    global _current
    early, _current = _current, None
    if early is not None:
        early.fork_server.abandon()


atexit.register(_discard)
os.register_at_fork(after_in_child=_forget_in_child)
