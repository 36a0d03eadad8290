"""Tasks, actors, objects and training on this machine, each library starting what it needs."""

from bench.rows.form import RAY, Contender, Metric, Row, Target, libraries, with_torchrun

_POOLS = ("ProcessPoolExecutor", "multiprocessing.Pool")

ROWS: tuple[Row, ...] = (
    Row(
        name="startup",
        contenders=with_torchrun("startup"),
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
        contenders=libraries("report"),
        metrics=(
            Metric(key="metrics_ms", label="report(metrics)", unit="ms", better="less", target=Target(limit=1.0)),
            Metric(key="checkpoint_ms", label="report with a checkpoint of 10 kB", unit="ms", better="less", target=Target(limit=10.0)),
        ),
        timeout_s=180.0,
    ),
    Row(
        name="ddp_step",
        contenders=tuple(contender for contender in with_torchrun("ddp_step") if contender.name != RAY),
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
        contenders=libraries("recovery"),
        metrics=(
            Metric(key="recovery_s", label="SIGKILL of a worker to training again", unit="s", better="less", target=Target(limit=1.0)),
        ),
    ),
    Row(
        name="tasks",
        contenders=(
            *libraries("tasks"),
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
            *libraries("actors"),
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
            *libraries("objects"),
            Contender(name="copy into fresh shared memory", module="shared_memory", argument="fresh"),
            Contender(name="copy into reused shared memory", module="shared_memory", argument="reused"),
        ),
        metrics=(Metric(key="gb_per_s", label="put and get of 100 MB arrays", unit="GB/s", better="more", target=Target(limit=5.0)),),
    ),
    Row(
        name="lines",
        contenders=with_torchrun("toy"),
        metrics=(
            Metric(key="lines", label="lines of a quiet run that the user did not write", unit="", better="less", target=Target(limit=5)),
        ),
    ),
)
