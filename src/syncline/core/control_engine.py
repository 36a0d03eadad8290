"""What a program's engine answers to those who look at it from outside; subject "engine" of the
control point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from syncline.core.engine import LISTED, Engine


class EngineAnswers:
    """Called with an action and its arguments; gives plain values. ValueError for an unknown
    action.
    """

    def __init__(self, engine: Engine) -> None:
        self._actions: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "nodes": lambda _: engine.nodes(),
            "resources": lambda _: {
                "total": engine.cluster_resources(),
                "available": engine.available_resources(),
            },
            "actors": lambda arguments: asdict(engine.actors(_limit(arguments))),
            "tasks": lambda arguments: asdict(engine.tasks(_limit(arguments))),
            "statistics": lambda _: {
                part: asdict(counters) for part, counters in engine.statistics().items()
            },
        }

    def __call__(self, action: str, arguments: Mapping[str, Any]) -> Any:
        if action not in self._actions:
            raise ValueError(
                f"the action {action!r} is unknown to this program's engine; it answers {', '.join(self._actions)}"
            )
        return self._actions[action](arguments)


def _limit(arguments: Mapping[str, Any]) -> int:
    limit = arguments.get("limit", LISTED)
    if not isinstance(limit, int) or limit < 0:
        raise ValueError(
            f"limit={limit!r} is no number of rows: give an integer from 0 on, or leave it out for {LISTED}"
        )
    return limit
