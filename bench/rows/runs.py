"""What recording costs, and how soon the dashboard shows what was recorded."""

from bench.rows.form import OURS, Contender, Metric, Row, Target

ROWS: tuple[Row, ...] = (
    Row(
        name="recording",
        group="runs",
        contenders=(Contender(name=OURS, module="recording", argument="syncline"),),
        metrics=(
            Metric(key="step_ms", label="a step without a report", unit="ms", better="less"),
            Metric(
                key="overhead_percent",
                label="how much longer a step with a report takes",
                unit="%",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="worker_us",
                label="CPU time of the worker's process for each report",
                unit="us",
                better="less",
            ),
            Metric(
                key="controller_us",
                label="CPU time of the program for each report",
                unit="us",
                better="less",
            ),
            Metric(
                key="record_mb",
                label="record of 10 000 reports by two ranks",
                unit="MB",
                better="less",
                target=Target(limit=20.0),
            ),
            Metric(
                key="open_ms", label="to read that record, with one curve", unit="ms", better="less"
            ),
        ),
    ),
    Row(
        name="dashboard",
        group="runs",
        contenders=(Contender(name=OURS, module="dashboard", argument="syncline"),),
        metrics=(
            Metric(
                key="start_s", label="dashboard: command to its address", unit="s", better="less"
            ),
            Metric(
                key="first_list_s",
                label="first list of 10 000 runs",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="list_s",
                label="the list again",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(
                key="run_s",
                label="first page of a run of 100 000 reports",
                unit="s",
                better="less",
                target=Target(limit=1.0),
            ),
            Metric(key="memory_mb", label="memory after that", unit="MB", better="less"),
        ),
        timeout_s=300.0,
    ),
)
