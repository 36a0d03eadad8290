"""Tasks, actors and objects on this machine; each library starts its own engine."""

from bench.rows.definitions import Contender, Metric, Row, Target, libraries

_POOLS = ("ProcessPoolExecutor", "multiprocessing.Pool")

ROWS: tuple[Row, ...] = (
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
        name="pool_map",
        contenders=(
            *libraries("pool_map"),
            Contender(name="multiprocessing.Pool", module="pool_map", argument="multiprocessing"),
        ),
        metrics=(
            Metric(
                key="items_per_s",
                label="Pool.map, 20 000 items, default chunks",
                unit="per s",
                better="more",
                target=Target(limit=1.0, peers=("multiprocessing.Pool",)),
            ),
            Metric(
                key="chunks_per_s",
                label="Pool.map, chunks of one item",
                unit="per s",
                better="more",
            ),
            Metric(
                key="calls_per_s", label="Pool.apply, one at a time", unit="per s", better="more"
            ),
        ),
    ),
    Row(
        name="actors",
        contenders=(
            *libraries("actors"),
            Contender(name="pipe", module="wires", argument="pipe"),
            Contender(name="raw frames on a socket", module="wires", argument="socket"),
            Contender(name="raw frames, I/O thread", module="wires", argument="threaded"),
        ),
        metrics=(
            Metric(
                key="one_per_s",
                label="actor calls, one at a time",
                unit="per s",
                better="more",
                target=Target(limit=12_000),
            ),
            Metric(
                key="many_per_s",
                label="actor calls, many in flight",
                unit="per s",
                better="more",
                target=Target(limit=60_000),
            ),
        ),
    ),
    Row(
        name="objects",
        contenders=(
            *libraries("objects"),
            Contender(
                name="copy into fresh shared memory", module="shared_memory", argument="fresh"
            ),
            Contender(
                name="copy into reused shared memory", module="shared_memory", argument="reused"
            ),
        ),
        metrics=(
            Metric(
                key="gb_per_s",
                label="put and get of 100 MB arrays",
                unit="GB/s",
                better="more",
                target=Target(limit=5.0),
            ),
        ),
    ),
)
