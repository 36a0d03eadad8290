"""Training on this machine: starts, steps, reports in all modes, what a restart costs, and the
controller alone.
"""

from bench.rows.form import (
    OURS,
    RAY,
    Contender,
    Metric,
    Row,
    Target,
    libraries,
    told,
    with_torchrun,
)

MODES = ("SYNC", "ASYNC", "NO_UPLOAD")
SIZES = {"1 kB": 1_000, "10 MB": 10_000_000, "500 MB": 500_000_000}
"""Bytes of the checkpoints that are reported in every mode."""


def _report_modes(name: str, storage: str, where: str) -> Row:
    """`report` in every mode with checkpoints of every size, on one storage."""
    at_once = Metric(
        key="metrics_ms",
        label=f"report(metrics), {where}",
        unit="ms",
        better="less",
        target=Target(limit=1.0),
    )
    return Row(
        name=name,
        group="train",
        contenders=told("report_modes", storage),
        metrics=(
            at_once,
            *(
                metric
                for mode in MODES
                for size in SIZES
                for metric in _of_checkpoint(mode, size, where)
            ),
        ),
        timeout_s=600.0,
    )


def _of_checkpoint(mode: str, size: str, where: str) -> tuple[Metric, Metric]:
    """What the training function waits, and when the checkpoint is there."""
    waits = {
        "SYNC": Target(limit=1.0, peers=(RAY,)),
        "ASYNC": Target(limit=10.0),  # whatever the size and the storage
        "NO_UPLOAD": None,  # Ray writes nothing then; we do, as the run is to go on exactly there
    }
    return (
        Metric(
            key=f"{mode}_{size}_ms",
            label=f"report, {mode}, {size}, {where}",
            unit="ms",
            better="less",
            target=waits[mode],
        ),
        Metric(
            key=f"{mode}_{size}_committed_s",
            label="that checkpoint committed after",
            unit="s",
            better="less",
            target=Target(limit=1.0, peers=(RAY,)),
        ),
    )


def _resume(name: str, reads: str, what: str, *, has_input: bool) -> Row:
    """What a restart in the middle of an epoch waits for its first batch; Ray knows no such thing,
    so there the program skips.
    """
    skips = "a program on Ray reads and drops"
    return Row(
        name=name,
        group="train",
        contenders=told("resume", reads),
        metrics=(
            Metric(
                key="at_1_s", label=f"{what}: first batch at 1 % ({skips})", unit="s", better="less"
            ),
            Metric(
                key="at_99_s",
                label=f"{what}: first batch at 99 % ({skips})",
                unit="s",
                better="less",
            ),
            Metric(
                key="growth",
                label="how much longer that takes",
                unit="",
                better="less",
                target=Target(limit=1.2),
            ),
            Metric(
                key="repeated",
                label="samples in these that the epoch had had",
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
        name="ddp_step",
        group="train",
        contenders=tuple(
            contender for contender in with_torchrun("ddp_step") if contender.name != RAY
        ),
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
                label="report with a checkpoint of 10 kB",
                unit="ms",
                better="less",
                target=Target(limit=10.0),
            ),
        ),
        timeout_s=180.0,
    ),
    _report_modes("report_local", "local", "this machine's disk"),
    _report_modes("report_slow", "slow", "slow storage"),
    _resume("resume_dataset", "dataset", "resumed dataset of 200 files, 1 M rows", has_input=True),
    _resume(
        "resume_loader",
        "loader",
        "resumed DataLoader, 1 M items of 1 ms, 8 processes a worker",
        has_input=False,
    ),
    Row(
        name="controller",
        group="train",
        contenders=(Contender(name=OURS, module="controller_simulation", argument="syncline"),),
        metrics=(
            Metric(
                key="event_us_100",
                label="controller alone, per event: 100 ranks",
                unit="us",
                better="less",
            ),
            Metric(key="event_us_10000", label="the same: 10 000 ranks", unit="us", better="less"),
            Metric(
                key="growth",
                label="how much an event grew",
                unit="",
                better="less",
                target=Target(limit=1.5),
            ),
            Metric(
                key="bytes_per_rank_10000",
                label="memory for each of these ranks at the end",
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
                label="lines of a quiet run that the user did not write",
                unit="",
                better="less",
                target=Target(limit=5),
            ),
        ),
    ),
)
