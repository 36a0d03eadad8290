"""The form of a row: contenders, the numbers that their programs give, and what syncline is
after.
"""

from dataclasses import dataclass, field
from typing import Literal

OURS = "syncline"
RAY = "Ray"

Better = Literal["less", "more"]
Launcher = Literal["python", "torchrun"]
Group = Literal["machine", "train", "data", "tune", "runs", "cluster"]
"""Where a row's programs run their workers: on this machine, each library starting what it needs
(training, pipelines of data and searches are groups of their own, as they take long), or on one Ray
cluster that is there.
"""
Input = Literal["images", "scan", "parts"]
"""Files that `bench.inputs` makes once per run, in a folder whose path the row's programs get."""

PEAK_MB = "peak_mb"
"""The most memory that all processes of a program had at one moment. The launcher takes it for the
rows that show it.
"""
PEAK_PER_BUDGET = "peak_per_budget"
"""That memory divided by the `budget_mb` that the program wrote."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a number of ours shall reach: an absolute limit, or, with `peers`, a ratio to the best
    of these.
    """

    limit: float
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a row, under the `key` that the programs write; a line of the table.

    A program of ours that measures Ray in between, in the same process, writes Ray's number under
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
    """Who runs a row's program: `module` of `bench.programs` with `argument`, started by
    `launcher`.
    """

    name: str
    module: str
    argument: str
    launcher: Launcher = "python"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. `timeout_s` bounds each of its measurements, `environment` holds for all
    contenders.

    A row whose target is finer than the noise of one measurement takes `turns_per_round` turns
    where the others take one.
    """

    name: str
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    group: Group = "machine"
    timeout_s: float = 120.0
    turns_per_round: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    input: Input | None = None

    @property
    def shows_memory(self) -> bool:
        """Whether the launcher has to watch the memory of this row's programs."""
        return any(metric.key in (PEAK_MB, PEAK_PER_BUDGET) for metric in self.metrics)


def libraries(module: str) -> tuple[Contender, ...]:
    """The same program with syncline and with Ray."""
    return (
        Contender(name=OURS, module=module, argument="syncline"),
        Contender(name=RAY, module=module, argument="ray"),
    )


def told(module: str, argument: str) -> tuple[Contender, ...]:
    """The same program with syncline and with Ray, told what to do with it."""
    return (
        Contender(name=OURS, module=module, argument=f"syncline-{argument}"),
        Contender(name=RAY, module=module, argument=f"ray-{argument}"),
    )


def with_torchrun(module: str) -> tuple[Contender, ...]:
    """The same program with syncline, with Ray and under torchrun."""
    return (
        *libraries(module),
        Contender(name="torchrun", module=module, argument="torchrun", launcher="torchrun"),
    )
