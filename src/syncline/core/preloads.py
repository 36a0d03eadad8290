"""Modules that the next workers of the embedded engine will import.

The fork server imports them before it forks the next worker, once for all workers. The program does
not import them itself. They are forgotten when the engine shuts down. Other engines ignore them.
"""

from __future__ import annotations

_expected: dict[str, None] = {}


def expect(*modules: str) -> None:
    """Add names of modules; a module that cannot be imported is left out."""
    _expected.update(dict.fromkeys(modules))


def expected() -> tuple[str, ...]:
    """Return the names in the order in which they were added."""
    return tuple(_expected)


def forget() -> None:
    """Remove all names."""
    _expected.clear()
