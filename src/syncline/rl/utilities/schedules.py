"""Schedules from older releases: values that change with the number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Schedule:
    """Base of schedules; implement `value`. Calling a schedule returns its value."""

    def value(self, t: float) -> Any:
        """Return the value after `t` steps."""
        raise NotImplementedError(f"{type(self).__name__} must implement `value`.")

    def __call__(self, t: float) -> Any:
        return self.value(t)


class ConstantSchedule(Schedule):
    """A constant value."""

    def __init__(self, value: float, framework: str | None = None) -> None:
        self._v = value

    def value(self, t: float) -> float:
        """Return the value."""
        return self._v


class PolynomialSchedule(Schedule):
    """Polynomial interpolation from an initial to a final value."""

    def __init__(
        self,
        schedule_timesteps: int,
        final_p: float,
        framework: str | None = None,
        initial_p: float = 1.0,
        power: float = 2.0,
    ) -> None:
        self.schedule_timesteps = schedule_timesteps
        self.final_p, self.initial_p, self.power = final_p, initial_p, power

    def value(self, t: float) -> float:
        """Return the value."""
        remaining = 1.0 - min(t, self.schedule_timesteps) / self.schedule_timesteps
        return self.final_p + (self.initial_p - self.final_p) * float(remaining**self.power)


class LinearSchedule(PolynomialSchedule):
    """Linear interpolation from an initial to a final value."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(power=1.0, **kwargs)


class ExponentialSchedule(Schedule):
    """An initial value times the decay rate to the power of the fraction of steps."""

    def __init__(
        self,
        schedule_timesteps: int,
        framework: str | None = None,
        initial_p: float = 1.0,
        decay_rate: float = 0.1,
    ) -> None:
        self.schedule_timesteps = schedule_timesteps
        self.initial_p, self.decay_rate = initial_p, decay_rate

    def value(self, t: float) -> float:
        """Return the value."""
        return self.initial_p * float(self.decay_rate ** (t / self.schedule_timesteps))


class PiecewiseSchedule(Schedule):
    """Piecewise linear interpolation between points (step, value).

    Args:
        endpoints: The points, in the order of steps.
        framework: Has no effect.
        interpolation: Function of (left, right, fraction); by default linear.
        outside_value: Value beyond the points; None for the value of the nearest point.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[int, float]],
        framework: str | None = None,
        interpolation: Callable[[float, float, float], float] | None = None,
        outside_value: float | None = None,
    ) -> None:
        self.endpoints = sorted(endpoints)
        self.interpolation = interpolation or (lambda a, b, share: a + share * (b - a))
        self.outside_value = outside_value

    def value(self, t: float) -> float:
        """Return the value."""
        for (left, a), (right, b) in zip(self.endpoints, self.endpoints[1:], strict=False):
            if left <= t < right:
                return self.interpolation(a, b, (t - left) / (right - left))
        if self.outside_value is not None:
            return self.outside_value
        return self.endpoints[0][1] if t < self.endpoints[0][0] else self.endpoints[-1][1]
