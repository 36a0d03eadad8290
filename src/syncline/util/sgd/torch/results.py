"""Reduction of the results of all workers to one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

from syncline.util.sgd.torch.value_types import Metrics
from syncline.util.sgd.utils import NUM_SAMPLES


def reduced(results: Sequence[Mapping[str, object]]) -> Metrics:
    """Sum `num_samples`, average other numbers weighted by samples, and keep rank 0's other values.

    Numbers that are equal on all workers stay unchanged, such as `epoch` and `batch_count`.
    """
    names = dict.fromkeys(name for result in results for name in result)
    return {
        name: _reduced(name, [result for result in results if name in result]) for name in names
    }


def _reduced(name: str, results: Sequence[Mapping[str, Any]]) -> Any:
    values = [result[name] for result in results]
    if not all(isinstance(value, Number) and not isinstance(value, bool) for value in values):
        return values[0]
    if name == NUM_SAMPLES:
        return sum(values)
    if all(value == values[0] for value in values):
        return values[0]
    weights = [result.get(NUM_SAMPLES, 1) for result in results]
    if not sum(weights):
        weights = [1] * len(values)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
