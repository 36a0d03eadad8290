"""Libraries that are not installed, played by objects that note what is done with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Recorder:
    """Notes calls on itself, and on what its methods return, in one list of (path, arguments,
    keywords).
    """

    def __init__(self, calls: list[Any] | None = None, path: str = "", **answers: Any) -> None:
        self.calls: list[Any] = [] if calls is None else calls
        self.path = path
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self.answers:
            return self.answers[name]
        return Recorder(self.calls, f"{self.path}.{name}".lstrip("."))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls.append((self.path, arguments, named))
        return Recorder(self.calls, f"{self.path}()")

    def __setitem__(self, key: str, value: Any) -> None:
        self.calls.append((f"{self.path}[{key}]", (value,), {}))

    def of(self, path: str) -> list[tuple[Any, Any]]:
        """Arguments of the calls at `path`."""
        return [(arguments, named) for called, arguments, named in self.calls if called == path]


def module(name: str, **content: Any) -> ModuleType:
    """A module to be put into `sys.modules`, as if it were installed."""
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, origin="played")
    made.__dict__.update(content)
    return made


def install(monkeypatch: Any, name: str, **content: Any) -> ModuleType:
    """Have `import name` find such a module until the test ends."""
    made = module(name, **content)
    monkeypatch.setitem(sys.modules, name, made)
    return made


def raising(error: Exception) -> Callable[..., Any]:
    """A function that fails."""

    def fail(*arguments: Any, **named: Any) -> Any:
        raise error

    return fail
