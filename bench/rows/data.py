"""Data pipelines on this machine, each with its peak memory."""

from bench.rows.definitions import (
    OURS,
    PEAK_MB,
    PEAK_PER_BUDGET,
    RAY,
    Contender,
    Metric,
    Row,
    Target,
    libraries,
)

_LOADER = "DataLoader, 2 workers"
_DAFT = "Daft"
_DAFT_DECODES = "Daft, decode only"
_SPDL = "SPDL"
_DAFT_SETTINGS = {"DAFT_RUNNER": "native", "DAFT_PROGRESS_BAR": "0", "DO_NOT_TRACK": "1"}
# Threads of torch wait for each other if other programs keep the cores busy.
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def _peak(budget_factor: float | None = None) -> Metric:
    """Return the metric of peak memory; with `budget_factor`, relative to the budget."""
    if budget_factor is None:
        return Metric(key=PEAK_MB, label="peak memory", unit="MB", better="less")
    target = Target(limit=budget_factor)
    return Metric(
        key=PEAK_PER_BUDGET,
        label="peak memory relative to the budget",
        unit="",
        better="less",
        target=target,
    )


def _rows_per_s(label: str, *peers: str) -> Metric:
    """Return the metric of rows per second; the target is at least the best of the peers."""
    return Metric(
        key="rows_per_s",
        label=label,
        unit="rows/s",
        better="more",
        target=Target(limit=1.0, peers=peers) if peers else None,
    )


def _seconds(key: str, label: str, target: Target | None = None) -> Metric:
    return Metric(key=key, label=label, unit="s", better="less", target=target)


def _images(decoder: str) -> tuple[Contender, ...]:
    """Return the contenders that decode images with a function of the program."""
    return (
        Contender(name=OURS, module="data.images", argument=f"syncline-{decoder}"),
        Contender(name=RAY, module="data.images", argument=f"ray-{decoder}"),
        Contender(name=_LOADER, module="data.image_loader", argument=decoder),
    )


_FIRST_BATCH = (
    _seconds("first_batch_s", "process start to the first batch"),
    _seconds("warm_first_batch_s", "first batch of a second epoch", Target(limit=0.2)),
)

ROWS: tuple[Row, ...] = (
    Row(
        name="python_images",
        group="data",
        contenders=_images("python"),
        metrics=(
            _rows_per_s(
                "CIFAR-10 JPEGs decoded by a Python function (PIL) into torch batches", _LOADER
            ),
            *_FIRST_BATCH,
            _peak(),
        ),
        timeout_s=300.0,
        environment=_DAFT_SETTINGS,
        input="images",
    ),
    Row(
        name="native_images",
        group="data",
        contenders=(
            *_images("native"),
            Contender(name=_DAFT, module="data.image_daft", argument="torch"),
            Contender(name=_DAFT_DECODES, module="data.image_daft", argument="decode"),
        ),
        metrics=(
            _rows_per_s("CIFAR-10 JPEGs decoded natively (simplejpeg)", _DAFT, _DAFT_DECODES),
            *_FIRST_BATCH,
            _peak(),
        ),
        timeout_s=300.0,
        environment=_DAFT_SETTINGS,
        input="images",
    ),
    Row(
        name="photos",
        group="data",
        contenders=(
            Contender(name=OURS, module="data.photos", argument="syncline"),
            Contender(name=_SPDL, module="data.photos", argument="spdl"),
            Contender(name="DataLoader with PIL", module="data.photos", argument="loader"),
            Contender(
                name="DataLoader with the same function",
                module="data.photos",
                argument="loader-same",
            ),
        ),
        metrics=(
            _rows_per_s("photos decoded, resized, cropped and normalized", _SPDL),
            *_FIRST_BATCH,
            _peak(),
        ),
        timeout_s=300.0,
        input="photos",
    ),
    Row(
        name="remote_photos",
        group="data",
        contenders=(
            Contender(name=OURS, module="data.remote_photos", argument="syncline-parquet"),
            Contender(
                name="syncline, WebDataset",
                module="data.remote_photos",
                argument="syncline-webdataset",
            ),
            Contender(name=_SPDL, module="data.remote_photos", argument="spdl"),
            Contender(name="LitData", module="data.remote_photos", argument="litdata"),
        ),
        metrics=(
            Metric(
                key="share",
                label="rate from S3 with 20 ms per request and 200 MB/s, relative to local files",
                unit="",
                better="more",
                target=Target(limit=0.95),
            ),
            _rows_per_s("photos from S3"),
            _peak(),
        ),
        timeout_s=600.0,
        input="photos",
    ),
    Row(
        name="scan",
        group="data",
        contenders=(
            *libraries("data.scan"),
            Contender(name="pyarrow", module="data.scan_peers", argument="pyarrow"),
            Contender(name=_DAFT, module="data.scan_peers", argument="daft"),
        ),
        metrics=(
            _rows_per_s("1 GB of Parquet, filtered and projected, into torch batches", "pyarrow"),
            _peak(),
        ),
        timeout_s=300.0,
        environment=_DAFT_SETTINGS,
        input="scan",
    ),
    Row(
        name="group_and_sort",
        group="data",
        contenders=(
            *libraries("data.tables"),
            Contender(name="pandas", module="data.table_peers", argument="pandas"),
            Contender(name=_DAFT, module="data.table_peers", argument="daft"),
        ),
        metrics=(
            _seconds("small_group_s", "sum and mean by key, 1 M rows, warm", Target(limit=0.5)),
            _seconds("group_s", "sum and mean by key, 10 M rows"),
            _seconds("sort_s", "sort of 10 M rows"),
            _peak(),
        ),
        timeout_s=600.0,
        environment=_DAFT_SETTINGS,
    ),
    Row(
        name="shuffle",
        group="data",
        contenders=libraries("data.shuffle"),
        metrics=(
            _seconds(
                "shuffle_s",
                "random shuffle of 1 GB with a memory budget of 256 MB",
                Target(limit=1.0, peers=(RAY,)),
            ),
            _peak(),
            Metric(
                key=PEAK_PER_BUDGET,
                label="peak memory relative to the budget",
                unit="",
                better="less",
            ),
        ),
        timeout_s=600.0,
    ),
    Row(
        name="local_shuffle",
        group="data",
        contenders=libraries("data.local_shuffle"),
        metrics=(
            Metric(
                key="share",
                label="throughput with a local shuffle, relative to no shuffle; batches are read",
                unit="",
                better="more",
                target=Target(limit=0.7),
            ),
            _rows_per_s("decoded images in locally shuffled torch batches"),
            Metric(
                key="held_share",
                label="same ratio with the images in memory",
                unit="",
                better="more",
                target=Target(limit=0.9),
            ),
            _peak(),
        ),
        timeout_s=300.0,
        environment=_ONE_THREAD,
        input="images",
    ),
    Row(
        name="stream",
        group="data",
        contenders=libraries("data.stream"),
        metrics=(
            _seconds(
                "stream_s",
                "create, map and read 4 GB with a memory budget of 1 GB",
                Target(limit=1.0, peers=(RAY,)),
            ),
            _peak(),
            _peak(budget_factor=1.5),
        ),
        timeout_s=600.0,
    ),
    Row(
        name="feed",
        group="data",
        contenders=(
            *libraries("data.feed"),
            Contender(name="DataLoader, 1 worker each", module="data.feed", argument="loader"),
        ),
        metrics=(
            Metric(
                key="wait_share",
                label="share of a training step spent waiting for data, 2 workers",
                unit="",
                better="less",
            ),
            _rows_per_s("rows trained on"),
            _peak(),
        ),
        timeout_s=600.0,
        input="images",
    ),
    *(
        Row(
            name=f"fed_{model}",
            group="data",
            contenders=(Contender(name=OURS, module="data.fed_training", argument=model),),
            metrics=(
                Metric(
                    key="share",
                    label=f"training of the {model} model on its shard, relative to one batch",
                    unit="",
                    better="more",
                    target=Target(limit=0.98),
                ),
                Metric(key="cpu_share", label="same ratio in CPU time", unit="", better="more"),
                Metric(key="step_ms", label="step", unit="ms", better="less"),
            ),
            timeout_s=300.0,
            input="images",
        )
        for model in ("demo", "fast")
    ),
    Row(
        name="scheduler",
        group="data",
        contenders=(Contender(name=OURS, module="scheduler_simulation", argument="syncline"),),
        metrics=(
            Metric(
                key="event_us_10000",
                label="scheduler alone, one event with 10 000 blocks on 1 000 nodes",
                unit="us",
                better="less",
            ),
            Metric(
                key="event_us_1000000",
                label="one event with 1 000 000 blocks",
                unit="us",
                better="less",
            ),
            Metric(
                key="growth",
                label="cost of an event relative to 10 000 blocks",
                unit="",
                better="less",
                target=Target(limit=1.5),
            ),
            Metric(key="peak_mb_1000000", label="peak memory", unit="MB", better="less"),
        ),
        timeout_s=900.0,
    ),
)
