"""Cost of run records, and latency of the dashboard."""

from bench.rows.definitions import OURS, Contender, Metric, Row, Target

ROWS: tuple[Row, ...] = (
    Row(
        name="recording",
        group="runs",
        contenders=(Contender(name=OURS, module="recording", argument="syncline"),),
        metrics=(
            Metric(key="step_ms", label="training step without a report", unit="ms", better="less"),
            Metric(
                key="overhead_percent",
                label="cost of one report per step",
                unit="%",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(key="worker_us", label="CPU time per report, worker", unit="us", better="less"),
            Metric(
                key="controller_us", label="CPU time per report, driver", unit="us", better="less"
            ),
            Metric(
                key="record_mb",
                label="size of the record of 10 000 reports by two ranks",
                unit="MB",
                better="less",
                target=Target(limit=20.0),
            ),
            Metric(
                key="open_ms",
                label="time to read that record with one curve",
                unit="ms",
                better="less",
            ),
        ),
    ),
    Row(
        name="dashboard",
        group="runs",
        contenders=(Contender(name=OURS, module="dashboard", argument="syncline"),),
        metrics=(
            Metric(
                key="start_s",
                label="dashboard: start until it prints its address",
                unit="s",
                better="less",
            ),
            Metric(
                key="first_list_s",
                label="list of 10 000 runs, first time",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="list_s",
                label="list of 10 000 runs, second time",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="run_s",
                label="page of a run with 100 000 reports",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="search_s",
                label="page of a search with 10 000 trials, first time",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="again_s",
                label="page of a search with 10 000 trials, second time",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(key="memory_mb", label="memory afterwards", unit="MB", better="less"),
        ),
        timeout_s=300.0,
    ),
)
