"""Loads engines by name, so that a program imports only the one that it runs on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Literal

from syncline.core.config import EngineConfig
from syncline.core.engine import Engine

EngineName = Literal["embedded", "inline"]

_STARTERS: dict[EngineName, tuple[str, str]] = {
    "embedded": ("syncline.core.embedded.start", "start_engine"),
    "inline": ("syncline.core.inline.engine", "InlineEngine"),
}


def start(name: EngineName, config: EngineConfig) -> Engine:
    """A running engine."""
    module, starter_name = _STARTERS[name]
    starter: Callable[[EngineConfig], Engine] = getattr(importlib.import_module(module), starter_name)
    return starter(config)


def join(session: str) -> Engine:
    """The engine of a child process that takes part in its parent's session."""
    joiner: Callable[[str], Engine] = importlib.import_module("syncline.core.embedded.child_processes").join
    return joiner(session)
