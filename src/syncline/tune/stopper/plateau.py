"""What the plateau stoppers share: the spread of a few values, and the value of a metric."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from syncline.train.metric_values import lookup


def spread(values: Collection[float]) -> float:
    """Standard deviation of the values, of all of them (divided by their number); not-a-number if
    one is no finite number.
    """
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def metric_value(result: Mapping[str, Any], metric: str) -> float | None:
    """The metric in a result as a number; None if it is missing, no number, or not finite."""
    try:
        value = float(lookup(result, metric))
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
