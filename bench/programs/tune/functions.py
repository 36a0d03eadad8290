"""Functions with known minima, common in benchmarks of optimization.

Surjanovic, Bingham: Virtual Library of Simulation Experiments,
https://www.sfu.ca/~ssurjano/optimization.html.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Point = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of points `{"x0": ..., "x1": ...}`."""

    value: Callable[[Sequence[float]], float]
    box: tuple[tuple[float, float], ...]
    """Lowest and highest value of each coordinate."""
    minimum: float

    def regret(self, point: Point) -> float:
        """Return the distance of the value to the minimum."""
        return self.value([point[f"x{index}"] for index in range(len(self.box))]) - self.minimum

    def regret_after(self, point: Point, step: int) -> float:
        """Return the regret on a learning curve that falls to it, faster for a smaller `x0`."""
        low, high = self.box[0]
        speed = 0.2 + 0.3 * (high - point["x0"]) / (high - low)
        return self.regret(point) * (1 + 2 * math.exp(-speed * step))


def branin(x: Sequence[float]) -> float:
    slope = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return slope**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10


_WEIGHTS = (1.0, 1.2, 3.0, 3.2)
_WIDTHS = (
    (10, 3, 17, 3.5, 1.7, 8),
    (0.05, 10, 17, 0.1, 8, 14),
    (3, 3.5, 1.7, 10, 17, 8),
    (17, 8, 0.05, 10, 0.1, 14),
)
_CENTRES = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def hartmann6(x: Sequence[float]) -> float:
    distances = (
        sum(
            width * (own - centre) ** 2
            for width, own, centre in zip(widths, x, centres, strict=True)
        )
        for widths, centres in zip(_WIDTHS, _CENTRES, strict=True)
    )
    return -sum(
        weight * math.exp(-distance) for weight, distance in zip(_WEIGHTS, distances, strict=True)
    )


def rosenbrock(x: Sequence[float]) -> float:
    return sum(
        100 * (x[index + 1] - x[index] ** 2) ** 2 + (1 - x[index]) ** 2
        for index in range(len(x) - 1)
    )


FUNCTIONS: Mapping[str, Function] = {
    "branin": Function(value=branin, box=((-5.0, 10.0), (0.0, 15.0)), minimum=0.39788735772973816),
    "hartmann6": Function(value=hartmann6, box=((0.0, 1.0),) * 6, minimum=-3.322368011415515),
    "rosenbrock": Function(value=rosenbrock, box=((-2.0, 2.0),) * 3, minimum=0.0),
}
