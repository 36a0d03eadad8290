"""`MetricReader`: finds metrics in the output of a program.

It finds `name=1.5`, `name: 1.5` and `"name": 1.5` of the wanted metric anywhere in a line, and all
numbers of lines that are JSON objects. The last value counts. Numbers of nested objects are named
`a/b`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

_NUMBER = r"[-+]?(?:nan|inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
_MAX_LINE = 1_000_000
_MAX_METRICS = 1_000


class MetricReader:
    """Reads the lines of several streams. Thread-safe.

    Args:
        metric: The wanted metric.
        on_metrics: Called with the metrics of a line that has some.
    """

    def __init__(self, metric: str, on_metrics: Callable[[Mapping[str, float]], None]) -> None:
        self._metric = metric
        self._on_metrics = on_metrics
        self._pattern = re.compile(
            rf"(?<![\w./-]){re.escape(metric)}[\"']?\s*[:=]\s*({_NUMBER})(?![\w.])", re.IGNORECASE
        )
        self._lock = threading.Lock()
        self.metrics: dict[str, float] = {}
        """Last value of each metric."""

    def read(self, line: str) -> None:
        """Read one line."""
        if len(line) > _MAX_LINE:
            return
        found = self._of_json(line.strip())
        if self._metric not in found:
            for match in self._pattern.finditer(line):
                found[self._metric] = float(match[1])
        if not found:
            return
        with self._lock:
            for name, value in found.items():
                if name in self.metrics or len(self.metrics) < _MAX_METRICS:
                    self.metrics[name] = value
            self._on_metrics(found)

    def _of_json(self, line: str) -> dict[str, float]:
        if not (line.startswith("{") and line.endswith("}")):
            return {}
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        found: dict[str, float] = {}
        _add_numbers(found, value, "", 4)
        return found


def _add_numbers(
    found: dict[str, float], value: Mapping[str, Any], prefix: str, depth: int
) -> None:
    for key, item in value.items():
        if isinstance(item, Mapping) and depth:
            _add_numbers(found, item, f"{prefix}{key}/", depth - 1)
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            with suppress(OverflowError):  # an integer beyond the range of a float
                found[f"{prefix}{key}"] = float(item)
