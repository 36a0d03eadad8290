"""Training on this machine: startup, steps, reports, restarts, and the controller alone."""

import os

from bench.rows.definitions import (
    OURS,
    RAY,
    Contender,
    Metric,
    Row,
    Target,
    libraries,
    with_torchrun,
)

MODES = ("SYNC", "ASYNC", "NO_UPLOAD")
TORCHFT = "Ray with torchft"
KILLS = int(os.environ.get("BENCH_KILLS", "20"))
KILL_DISTANCE_S = float(os.environ.get("BENCH_KILL_DISTANCE_S", "3"))
"""Kills of the rows `kills` and `loaders`, and their mean distance in seconds in `kills`."""
SNAPSHOT_BYTES = 500_000_000
"""Size of the state of each rank that is copied or saved."""
SIZES = {"1 kB": 1_000, "10 MB": 10_000_000, "500 MB": 500_000_000}
"""Sizes in bytes of the checkpoints reported in every mode."""


def _report_modes(name: str, storage: str, where: str) -> Row:
    """Return the row of `report` in every mode with checkpoints of every size on one storage."""
    metrics_only = Metric(
        key="metrics_ms",
        label=f"report(metrics), {where}",
        unit="ms",
        better="less",
        target=Target(limit=1.0),
    )
    return Row(
        name=name,
        group="train",
        contenders=libraries("report_modes", storage),
        metrics=(
            metrics_only,
            *(
                metric
                for mode in MODES
                for size in SIZES
                for metric in _checkpoint_metrics(mode, size, where)
            ),
        ),
        timeout_s=600.0,
    )


def _checkpoint_metrics(mode: str, size: str, where: str) -> tuple[Metric, Metric]:
    """Return the metrics for the duration of the call and for the commit of the checkpoint."""
    targets = {
        "SYNC": Target(limit=1.0, peers=(RAY,)),
        "ASYNC": Target(limit=10.0),  # independent of size and storage
        "NO_UPLOAD": None,  # Ray writes nothing; syncline records where to resume
    }
    return (
        Metric(
            key=f"{mode}_{size}_ms",
            label=f"report, {mode}, {size}, {where}",
            unit="ms",
            better="less",
            target=targets[mode],
        ),
        Metric(
            key=f"{mode}_{size}_committed_s",
            label="until the checkpoint is committed",
            unit="s",
            better="less",
            target=Target(limit=1.0, peers=(RAY,)),
        ),
    )


def _saved_checkpoint(storage: str, where: str) -> Row:
    """Return the row of a checkpoint of 500 MB, serialization included."""
    return Row(
        name=f"saved_checkpoint_{storage}",
        group="train",
        contenders=libraries("saved_checkpoint", storage),
        metrics=(
            Metric(
                key="stall_ms",
                label=f"checkpoint of 500 MB, serialization included, {where}: the step waits",
                unit="ms",
                better="less",
                target=Target(limit=1.0, peers=(RAY,)),
            ),
            Metric(
                key="committed_s",
                label="until the checkpoint is committed",
                unit="s",
                better="less",
                target=Target(limit=1.0, peers=(RAY,)),
            ),
        ),
        timeout_s=600.0,
    )


def _resume(name: str, reads: str, label: str, *, has_input: bool) -> Row:
    """Return the row of the first batch after a restart within an epoch. Ray cannot resume there,
    so its program reads and drops the batches before.
    """
    ray = "on Ray: reads and drops"
    return Row(
        name=name,
        group="train",
        contenders=libraries("resume", reads),
        metrics=(
            Metric(
                key="at_1_s", label=f"{label}: first batch at 1 % ({ray})", unit="s", better="less"
            ),
            Metric(
                key="at_99_s",
                label=f"{label}: first batch at 99 % ({ray})",
                unit="s",
                better="less",
            ),
            Metric(
                key="growth",
                label="first batch at 99 % relative to 1 %",
                unit="",
                better="less",
                target=Target(limit=1.2),
            ),
            Metric(
                key="repeated",
                label="repeated samples",
                unit="",
                better="less",
                target=Target(limit=0),
            ),
        ),
        timeout_s=900.0,
        input="parts" if has_input else None,
    )


ROWS: tuple[Row, ...] = (
    Row(
        name="startup",
        group="train",
        contenders=with_torchrun("startup"),
        metrics=(
            Metric(
                key="all_reduce_s",
                label="process start to the first all-reduce, 2 workers",
                unit="s",
                better="less",
                target=Target(limit=1.2, peers=("torchrun",)),
            ),
            Metric(
                key="process_s",
                label="whole process",
                unit="s",
                better="less",
                target=Target(limit=1.2, peers=("torchrun",)),
            ),
        ),
    ),
    Row(
        name="launcher_start",
        group="train",
        contenders=(
            Contender(name=OURS, module="startup", argument="torchrun", launcher="syncline run"),
            Contender(
                name="syncline, warm",
                module="startup",
                argument="torchrun",
                launcher="warm syncline run",
            ),
            Contender(name="torchrun", module="startup", argument="torchrun", launcher="torchrun"),
        ),
        metrics=(
            Metric(
                key="all_reduce_s",
                label="`syncline run`: process start to the first all-reduce, 2 workers",
                unit="s",
                better="less",
                target=Target(limit=1.0, peers=("torchrun",)),
            ),
            Metric(
                key="process_s",
                label="`syncline run`: whole process",
                unit="s",
                better="less",
                target=Target(limit=1.0, peers=("torchrun",)),
            ),
        ),
    ),
    Row(
        name="ddp_step",
        group="train",
        contenders=tuple(
            contender for contender in with_torchrun("ddp_step") if contender.name != RAY
        ),
        metrics=(
            Metric(
                key="step_ms",
                label="DDP step, 2 workers",
                unit="ms",
                better="less",
                target=Target(limit=1.01, peers=("torchrun",)),
            ),
        ),
        runs_per_round=3,
        environment={"OMP_NUM_THREADS": "1"},
    ),
    Row(
        name="recovery",
        group="train",
        contenders=libraries("recovery"),
        metrics=(
            Metric(
                key="recovery_s",
                label="SIGKILL of a worker to training again",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
        ),
    ),
    Row(
        name="snapshot_recovery",
        group="train",
        contenders=(
            *libraries("snapshot_recovery"),
            Contender(
                name="torchrun",
                module="snapshot_recovery",
                argument="torchrun",
                launcher="restarting torchrun",
            ),
            Contender(name=TORCHFT, module="torchft_recovery", argument="ray-torchft"),
        ),
        metrics=(
            Metric(
                key="recovery_s",
                label="SIGKILL of a worker to the next optimizer step, memory snapshots "
                "(Ray: checkpoints, torchrun: asynchronous DCP, torchft: of the survivor)",
                unit="s",
                better="less",
                target=Target(limit=0.3),
            ),
            Metric(
                key="repeated",
                label="repeated steps",
                unit="",
                better="less",
                target=Target(limit=1),
            ),
            Metric(
                key="rejoined_s", label="to the next step of all workers", unit="s", better="less"
            ),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="kills",
        group="train",
        contenders=(
            Contender(name=OURS, module="kills", argument="syncline"),
            Contender(
                name="torchrun", module="kills", argument="torchrun", launcher="restarting torchrun"
            ),
            Contender(name=TORCHFT, module="torchft_kills", argument="ray-torchft"),
        ),
        metrics=(
            Metric(
                key="goodput",
                label=f"{KILLS} kills, {KILL_DISTANCE_S:g} s apart on average: goodput "
                "(torchrun: asynchronous DCP)",
                unit="%",
                better="more",
            ),
            Metric(key="lost_s", label="time lost per kill", unit="s", better="less"),
            Metric(
                key="repeated",
                label="repeated steps per kill",
                unit="",
                better="less",
                target=Target(limit=1),
            ),
            Metric(
                key="wrong_samples",
                label="samples lost or repeated",
                unit="",
                better="less",
                target=Target(limit=0),
            ),
            Metric(
                key="differs",
                label="weights differ from those without kills (1: yes)",
                unit="",
                better="less",
                target=Target(limit=0),
            ),
        ),
        timeout_s=120.0 + KILLS * (KILL_DISTANCE_S + 20.0),
    ),
    Row(
        name="snapshot_stall",
        group="train",
        contenders=(
            Contender(name=OURS, module="snapshot_stall", argument="syncline"),
            Contender(
                name="torchrun", module="snapshot_stall", argument="torchrun", launcher="torchrun"
            ),
        ),
        metrics=(
            Metric(
                key="ratio",
                label="memory snapshot of 500 MB relative to a memcpy (torchrun: async DCP)",
                unit="",
                better="less",
                target=Target(limit=1.2),
            ),
            Metric(key="stall_ms", label="the step waits", unit="ms", better="less"),
            Metric(key="first_ms", label="the first time", unit="ms", better="less"),
        ),
        timeout_s=600.0,
    ),
    Row(
        name="save_stall",
        group="train",
        contenders=(Contender(name=OURS, module="save_stall", argument="syncline"),),
        metrics=(
            Metric(
                key="ratio",
                label="`train.save` of 500 MB relative to a memory snapshot: the step waits",
                unit="",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(key="save_ms", label="`train.save`", unit="ms", better="less"),
            Metric(key="snapshot_ms", label="`train.snapshot`", unit="ms", better="less"),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="watch_overhead",
        group="train",
        contenders=(Contender(name=OURS, module="watch_overhead", argument="syncline"),),
        metrics=(
            Metric(
                key="percent",
                label="diagnosis of stalls, CPU time on a rank with steps of 5 ms",
                unit="%",
                better="less",
                target=Target(limit=0.5),
            ),
            Metric(key="watch_percent", label="the watch alone", unit="%", better="less"),
            Metric(
                key="entry_us", label="an entry of the flight recorder", unit="us", better="less"
            ),
        ),
        timeout_s=300.0,
    ),
    Row(
        name="loaders",
        group="train",
        contenders=(
            Contender(name=OURS, module="loader_resume", argument="syncline"),
            Contender(
                name="the libraries alone", module="loader_resume", argument="library", max_runs=1
            ),
        ),
        metrics=(
            Metric(
                key="lost",
                label=f"loaders of other libraries, {KILLS} kills: lost samples",
                unit="",
                better="less",
                target=Target(limit=0),
            ),
            Metric(
                key="repeated",
                label="repeated samples",
                unit="",
                better="less",
                target=Target(limit=0),
            ),
            Metric(key="loaders", label="loaders that are installed", unit="", better="more"),
        ),
        timeout_s=120.0 + 20.0 * KILLS,
    ),
    _saved_checkpoint("local", "local disk"),
    _saved_checkpoint("slow", "slow storage"),
    Row(
        name="report",
        group="train",
        contenders=libraries("report"),
        metrics=(
            Metric(
                key="metrics_ms",
                label="report(metrics)",
                unit="ms",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="checkpoint_ms",
                label="report with a 10 kB checkpoint",
                unit="ms",
                better="less",
                target=Target(limit=10.0),
            ),
        ),
        timeout_s=180.0,
    ),
    _report_modes("report_local", "local", "local disk"),
    _report_modes("report_slow", "slow", "slow storage"),
    _resume("resume_dataset", "dataset", "resumed dataset, 1 M rows in 200 files", has_input=True),
    _resume(
        "resume_loader",
        "loader",
        "resumed DataLoader, 1 M items of 1 ms, 8 processes per worker",
        has_input=False,
    ),
    Row(
        name="controller",
        group="train",
        contenders=(Contender(name=OURS, module="controller_simulation", argument="syncline"),),
        metrics=(
            Metric(
                key="event_us_100",
                label="controller alone, one event with 100 ranks",
                unit="us",
                better="less",
            ),
            Metric(
                key="event_us_10000", label="one event with 10 000 ranks", unit="us", better="less"
            ),
            Metric(
                key="growth",
                label="cost of an event relative to 100 ranks",
                unit="",
                better="less",
                target=Target(limit=1.5),
            ),
            Metric(
                key="bytes_per_rank_10000",
                label="memory per rank at the end",
                unit="bytes",
                better="less",
            ),
        ),
        timeout_s=600.0,
    ),
    Row(
        name="lines",
        group="train",
        contenders=with_torchrun("toy"),
        metrics=(
            Metric(
                key="lines",
                label="lines printed besides the user's own",
                unit="",
                better="less",
                target=Target(limit=5),
            ),
        ),
    ),
)
