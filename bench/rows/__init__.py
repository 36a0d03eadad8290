"""What is measured: all rows, group by group, and the form that they have.

- `form.py`      contenders, metrics, targets, rows
- `machine.py`   tasks, actors and objects on this machine
- `train.py`     training on this machine
- `data.py`      pipelines of data on this machine
- `tune.py`      searches on this machine
- `runs.py`      records of runs, and the dashboard
- `cluster.py`   what runs on one Ray cluster
"""

from bench.rows import cluster, data, machine, runs, train, tune
from bench.rows.form import (
    OURS,
    PEAK_MB,
    PEAK_PER_BUDGET,
    RAY,
    Contender,
    Group,
    Input,
    Metric,
    Row,
    Target,
)

ROWS: tuple[Row, ...] = (
    *machine.ROWS,
    *train.ROWS,
    *data.ROWS,
    *tune.ROWS,
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
    "Metric",
    "Row",
    "Target",
]
