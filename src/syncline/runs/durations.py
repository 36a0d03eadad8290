"""Durations as texts with one unit."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Return a duration with one unit; "-" for None."""
    if seconds is None:
        return "-"
    for limit, unit, length in (
        (1, "ms", 0.001),
        (100, "s", 1),
        (6_000, "min", 60),
        (172_800, "h", 3_600),
    ):
        if seconds < limit:
            return (
                f"{seconds / length:.1f} {unit}"
                if unit == "s" and seconds < 10
                else f"{seconds / length:.0f} {unit}"
            )
    return f"{seconds / 86_400:.0f} d"
