"""Loads engines by name, so that a program imports only the one that it runs on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Literal

from syncline.core.config import EngineConfig
from syncline.core.engine import Engine

EngineName = Literal["cluster", "embedded", "inline"]

_STARTERS: dict[EngineName, tuple[str, str]] = {
    "cluster": ("syncline.core.cluster.start", "start_engine"),
    "embedded": ("syncline.core.embedded.start", "start_engine"),
    "inline": ("syncline.core.inline.engine", "InlineEngine"),
}


def start(name: EngineName, config: EngineConfig) -> Engine:
    """A running engine."""
    module, starter_name = _STARTERS[name]
    try:
        starter: Callable[[EngineConfig], Engine] = getattr(
            importlib.import_module(module), starter_name
        )
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            f"`address={config.address!r}` is a cluster's, and clusters need Ray, which is not installed here: run "
            f'`pip install "syncline[cluster]"` here and on every node, or leave out `address` (and unset SYNCLINE_ADDRESS) to run on '
            f"this machine.",
            name="ray",
        ) from None
    return starter(config)


def enter_cluster() -> Engine:
    """The engine of a process that the cluster started to run tasks."""
    entry: Callable[[], Engine] = importlib.import_module(
        "syncline.core.cluster.start"
    ).worker_engine
    return entry()


def join(session: str) -> Engine:
    """The engine of a child process that takes part in its parent's session."""
    joiner: Callable[[str], Engine] = importlib.import_module(
        "syncline.core.embedded.child_processes"
    ).join
    return joiner(session)
