"""Cutting a number of rows into slices."""

from __future__ import annotations


def cut(rows: int, count: int) -> list[tuple[int, int]]:
    """(start, end) of at most `count` slices whose lengths differ by one at most; none is empty."""
    count = max(1, min(count, rows))
    bounds = [index * rows // count for index in range(count + 1)]
    return [(start, end) for start, end in zip(bounds, bounds[1:], strict=False) if end > start]
