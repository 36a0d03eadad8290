"""`Schedule`: a value that changes with the number of sampled environment steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from syncline.rl.value_types import OptionSchedule


class Schedule:
    """A constant, or a piecewise linear function of steps.

    Args:
        value: A number, or points `[[0, x0], [step1, x1], …]` in ascending order of steps. The
            value is constant after the last point.
        name: Name of the option, for error messages.

    Raises:
        ValueError: The points do not begin at step 0, are not in order, or are not numbers.
    """

    def __init__(self, value: float | Sequence[Sequence[float]], name: str = "schedule") -> None:
        self._steps, self._values = _points(value, name)

    @property
    def is_constant(self) -> bool:
        """True if the value is constant."""
        return len(self._values) == 1

    def value(self, step: int) -> float:
        """Return the value after `step` environment steps."""
        index = bisect_right(self._steps, step) - 1
        if index + 1 == len(self._steps):
            return self._values[-1]
        share = (step - self._steps[index]) / (self._steps[index + 1] - self._steps[index])
        return self._values[index] + share * (self._values[index + 1] - self._values[index])


def _points(value: OptionSchedule, name: str) -> tuple[list[float], list[float]]:
    if isinstance(value, (int, float)):
        return [0], [float(value)]
    try:
        points = [(float(step), float(at)) for step, at in value]
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}={value!r}` is neither a number nor a schedule such as "
            "[[0, 0.001], [100_000, 0.0001]]."
        ) from None
    steps = [step for step, _ in points]
    if not points or steps[0] != 0 or any(a >= b for a, b in pairwise(steps)):
        raise ValueError(
            f"The steps of `{name}={value!r}` must start at 0 and increase, as in "
            "[[0, 0.001], [100_000, 0.0001]]."
        )
    return steps, [at for _, at in points]
