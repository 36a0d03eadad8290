"""What is measured: each row's contenders, the numbers that its programs give, and what syncline is after."""

from dataclasses import dataclass, field
from typing import Literal

OURS = "syncline"
RAY = "Ray"

Better = Literal["less", "more"]
Launcher = Literal["python", "torchrun"]
Group = Literal["machine", "cluster"]
"""Where a row's programs run their workers: on this machine, each library starting what it needs, or on one Ray cluster that is there."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a number of ours shall reach: an absolute limit, or, with `peers`, a ratio to the best of these."""

    limit: float
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a row, under the `key` that the programs write; a line of the table.

    A program of ours that measures Ray in between, in the same process, writes Ray's number under `ray_key`.
    """

    key: str
    label: str
    unit: str
    better: Better
    target: Target | None = None
    ray_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Who runs a row's program: `module` of `bench.programs` with `argument`, started by `launcher`."""

    name: str
    module: str
    argument: str
    launcher: Launcher = "python"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison. `timeout_s` bounds each of its measurements, `environment` holds for all contenders.

    A row whose target is finer than the noise of one measurement takes `turns_per_round` turns where the others take one.
    """

    name: str
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    group: Group = "machine"
    timeout_s: float = 120.0
    turns_per_round: int = 1
    environment: dict[str, str] = field(default_factory=dict)


def _libraries(module: str) -> tuple[Contender, ...]:
    """The same program with syncline and with Ray."""
    return (
        Contender(name=OURS, module=module, argument="syncline"),
        Contender(name=RAY, module=module, argument="ray"),
    )


def _with_torchrun(module: str) -> tuple[Contender, ...]:
    """The same program with syncline, with Ray and under torchrun."""
    return (*_libraries(module), Contender(name="torchrun", module=module, argument="torchrun", launcher="torchrun"))


def _over_bare_ray(key: str, label: str, unit: str) -> Metric:
    """What a call through our engine costs more than the same call of Ray's: a tenth at most."""
    target = Target(limit=0.91, peers=(RAY,))
    return Metric(key=key, label=label, unit=unit, better="more", target=target, ray_key=f"ray_{key}")


_POOLS = ("ProcessPoolExecutor", "multiprocessing.Pool")

ROWS: tuple[Row, ...] = (
    Row(
        name="startup",
        contenders=_with_torchrun("startup"),
        metrics=(
            Metric(
                key="all_reduce_s",
                label="process start to first all-reduce, 2 workers",
                unit="s",
                better="less",
                target=Target(limit=1.2, peers=("torchrun",)),
            ),
            Metric(
                key="process_s",
                label="the whole of that process",
                unit="s",
                better="less",
                target=Target(limit=1.2, peers=("torchrun",)),
            ),
        ),
    ),
    Row(
        name="report",
        contenders=_libraries("report"),
        metrics=(
            Metric(key="metrics_ms", label="report(metrics)", unit="ms", better="less", target=Target(limit=1.0)),
            Metric(key="checkpoint_ms", label="report with a checkpoint of 10 kB", unit="ms", better="less", target=Target(limit=10.0)),
        ),
        timeout_s=180.0,
    ),
    Row(
        name="ddp_step",
        contenders=tuple(contender for contender in _with_torchrun("ddp_step") if contender.name != RAY),
        metrics=(
            Metric(
                key="step_ms",
                label="DDP step of a small model, 2 workers",
                unit="ms",
                better="less",
                target=Target(limit=1.01, peers=("torchrun",)),
            ),
        ),
        turns_per_round=3,
        environment={"OMP_NUM_THREADS": "1"},
    ),
    Row(
        name="recovery",
        contenders=_libraries("recovery"),
        metrics=(
            Metric(key="recovery_s", label="SIGKILL of a worker to training again", unit="s", better="less", target=Target(limit=1.0)),
        ),
    ),
    Row(
        name="tasks",
        contenders=(
            *_libraries("tasks"),
            Contender(name="ProcessPoolExecutor", module="pools", argument="futures"),
            Contender(name="multiprocessing.Pool", module="pools", argument="pool"),
        ),
        metrics=(
            Metric(
                key="one_per_s",
                label="task round trips, one at a time",
                unit="per s",
                better="more",
                target=Target(limit=1.2, peers=_POOLS),
            ),
            Metric(
                key="many_per_s",
                label="task round trips, many in flight",
                unit="per s",
                better="more",
                target=Target(limit=2.0, peers=_POOLS),
            ),
        ),
    ),
    Row(
        name="actors",
        contenders=(
            *_libraries("actors"),
            Contender(name="pipe", module="wires", argument="pipe"),
            Contender(name="bare frames", module="wires", argument="socket"),
            Contender(name="bare frames, I/O thread", module="wires", argument="threaded"),
        ),
        metrics=(
            Metric(key="one_per_s", label="actor calls, one at a time", unit="per s", better="more", target=Target(limit=12_000)),
            Metric(key="many_per_s", label="actor calls, many in flight", unit="per s", better="more", target=Target(limit=60_000)),
        ),
    ),
    Row(
        name="objects",
        contenders=(
            *_libraries("objects"),
            Contender(name="copy into fresh shared memory", module="shared_memory", argument="fresh"),
            Contender(name="copy into reused shared memory", module="shared_memory", argument="reused"),
        ),
        metrics=(Metric(key="gb_per_s", label="put and get of 100 MB arrays", unit="GB/s", better="more", target=Target(limit=5.0)),),
    ),
    Row(
        name="lines",
        contenders=_with_torchrun("toy"),
        metrics=(
            Metric(key="lines", label="lines of a quiet run that the user did not write", unit="", better="less", target=Target(limit=5)),
        ),
    ),
    Row(
        name="cluster_startup",
        group="cluster",
        contenders=_libraries("startup"),
        metrics=(
            Metric(
                key="all_reduce_s",
                label="process start to first all-reduce, 2 workers",
                unit="s",
                better="less",
                target=Target(limit=0.4, peers=(RAY,)),
            ),
        ),
    ),
    Row(
        name="cluster_report",
        group="cluster",
        contenders=_libraries("report"),
        metrics=(
            Metric(key="metrics_ms", label="report(metrics)", unit="ms", better="less", target=Target(limit=10.0)),
            Metric(key="checkpoint_ms", label="report with a checkpoint of 10 kB", unit="ms", better="less", target=Target(limit=10.0)),
        ),
    ),
    Row(
        name="cluster_recovery",
        group="cluster",
        contenders=_libraries("recovery"),
        metrics=(
            Metric(
                key="recovery_s",
                label="SIGKILL of a worker to training again",
                unit="s",
                better="less",
                target=Target(limit=0.4, peers=(RAY,)),
            ),
        ),
    ),
    Row(
        name="cluster_calls",
        group="cluster",
        contenders=(Contender(name=OURS, module="overhead", argument="syncline"),),
        metrics=(
            _over_bare_ray("tasks_one_per_s", "task round trips, one at a time", "per s"),
            _over_bare_ray("tasks_many_per_s", "task round trips, many in flight", "per s"),
            _over_bare_ray("actors_one_per_s", "actor calls, one at a time", "per s"),
            _over_bare_ray("actors_many_per_s", "actor calls, many in flight", "per s"),
            _over_bare_ray("objects_gb_per_s", "put and get of 100 MB arrays", "GB/s"),
        ),
    ),
)
