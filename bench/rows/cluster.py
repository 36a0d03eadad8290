"""Rows on one Ray cluster, where syncline's and Ray's programs alternate."""

from bench.rows.definitions import OURS, RAY, Contender, Metric, Row, Target, libraries


def _over_bare_ray(key: str, label: str, unit: str) -> Metric:
    """Return a metric whose target is at most 10 % overhead over the same call of Ray."""
    target = Target(limit=0.91, peers=(RAY,))
    return Metric(
        key=key, label=label, unit=unit, better="more", target=target, ray_key=f"ray_{key}"
    )


ROWS: tuple[Row, ...] = (
    Row(
        name="cluster_startup",
        group="cluster",
        contenders=libraries("startup"),
        metrics=(
            Metric(
                key="all_reduce_s",
                label="process start to the first all-reduce, 2 workers",
                unit="s",
                better="less",
                target=Target(limit=0.4, peers=(RAY,)),
            ),
        ),
    ),
    Row(
        name="cluster_report",
        group="cluster",
        contenders=libraries("report"),
        metrics=(
            Metric(
                key="metrics_ms",
                label="report(metrics)",
                unit="ms",
                better="less",
                target=Target(limit=10.0),
            ),
            Metric(
                key="checkpoint_ms",
                label="report with a 10 kB checkpoint",
                unit="ms",
                better="less",
                target=Target(limit=10.0),
            ),
        ),
    ),
    Row(
        name="cluster_recovery",
        group="cluster",
        contenders=libraries("recovery"),
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
