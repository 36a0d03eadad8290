"""Definition of a row: contenders, metrics and targets."""

from dataclasses import dataclass, field
from typing import Literal

OURS = "syncline"
RAY = "Ray"

Better = Literal["less", "more"]
Launcher = Literal["python", "torchrun", "restarting torchrun", "syncline run", "warm syncline run"]
Group = Literal["machine", "train", "data", "tune", "serve", "rl", "runs", "cluster"]
"""Group of a row: on this machine, where each library starts its own engine (long rows have groups
of their own), or on one running Ray cluster.
"""
Input = Literal["images", "scan", "parts", "photos"]
"""Input files, created once per run by `bench.inputs`; programs receive the path of the folder."""

PEAK_MB = "peak_mb"
"""Metric of the launcher: peak memory of all processes of a program."""
PEAK_PER_BUDGET = "peak_per_budget"
"""Peak memory divided by the value `budget_mb` of the program."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Target of a metric: an absolute limit or, with `peers`, a ratio to the best of them; `plus`
    is added to the product, in the unit of the metric.
    """

    limit: float
    peers: tuple[str, ...] = ()
    plus: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One value of a row and one line of the table; programs write it under `key`.

    A program of syncline that also measures Ray in the same process writes Ray's value under
    `ray_key`.
    """

    key: str
    label: str
    unit: str
    better: Better
    target: Target | None = None
    ray_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A program of a row: `module` of `bench.programs` with `argument`, started by `launcher`.

    A slow program whose values are far from the others' is measured `max_runs` times at most.
    """

    name: str
    module: str
    argument: str
    launcher: Launcher = "python"
    max_runs: int | None = None

    @property
    def needs_ray(self) -> bool:
        """True for Ray alone or with another library."""
        return self.name.startswith(RAY)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison: `timeout_s` limits each measurement, `environment` applies to all contenders.

    A row whose target is smaller than the noise of one measurement has several per round.
    """

    name: str
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    group: Group = "machine"
    timeout_s: float = 120.0
    runs_per_round: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    input: Input | None = None

    @property
    def shows_memory(self) -> bool:
        """True if the launcher must sample the memory of this row's programs."""
        return any(metric.key in (PEAK_MB, PEAK_PER_BUDGET) for metric in self.metrics)


def libraries(module: str, argument: str = "") -> tuple[Contender, ...]:
    """Return the same program with syncline and with Ray, optionally with a further argument."""
    suffix = f"-{argument}" if argument else ""
    return (
        Contender(name=OURS, module=module, argument=f"syncline{suffix}"),
        Contender(name=RAY, module=module, argument=f"ray{suffix}"),
    )


def with_torchrun(module: str) -> tuple[Contender, ...]:
    """Return the same program with syncline, with Ray and under torchrun."""
    return (
        *libraries(module),
        Contender(name="torchrun", module=module, argument="torchrun", launcher="torchrun"),
    )
