"""All rows of the benchmarks, by group.

- `definitions.py`  contenders, metrics, targets, rows
- `machine.py`      tasks, actors and objects on this machine
- `train.py`        training on this machine
- `data.py`         data pipelines on this machine
- `tune.py`         hyperparameter searches on this machine
- `serve.py`        requests over HTTP, calls of handles, streams and replicas on this machine
- `rl.py`           reinforcement learning on this machine
- `runs.py`         run records and the dashboard
- `cluster.py`      all of these on one Ray cluster
"""

from bench.rows import cluster, data, machine, rl, runs, serve, train, tune
from bench.rows.definitions import (
    OURS,
    PEAK_MB,
    PEAK_PER_BUDGET,
    RAY,
    Contender,
    Group,
    Input,
    Launcher,
    Metric,
    Row,
    Target,
)

ROWS: tuple[Row, ...] = (
    *machine.ROWS,
    *train.ROWS,
    *data.ROWS,
    *tune.ROWS,
    *serve.ROWS,
    *rl.ROWS,
    *runs.ROWS,
    *cluster.ROWS,
)

__all__ = [
    "OURS",
    "PEAK_MB",
    "PEAK_PER_BUDGET",
    "RAY",
    "ROWS",
    "Contender",
    "Group",
    "Input",
    "Launcher",
    "Metric",
    "Row",
    "Target",
]
