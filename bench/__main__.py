"""Run the benchmarks, print the tables and write all values to a JSON file.

`python -m bench [--only ROW ...] [--group GROUP] [--rounds N] [--ray-python PATH] [--json PATH]`
"""

import argparse
import dataclasses
import datetime
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console

from bench.cluster import running_cluster
from bench.inputs import Inputs
from bench.machine import facts
from bench.measure import PYTHON_PATH, ROOT, measure
from bench.rows import OURS, ROWS, Group, Row
from bench.schedule import choose, planned_runs
from bench.summary import Line, Measurement, compare_all
from bench.table import number, render

DEFAULT_RAY_PYTHON = ROOT / ".venv-bench/bin/python"
WIDTH_WITHOUT_TERMINAL = 200


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of one run."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Compare syncline with its peers, alternating."
    )
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        metavar="ROW",
        help=f"rows to measure (default: all): {names}",
    )
    parser.add_argument(
        "--group", choices=get_args(Group), help="measure the rows of one group (default: all)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds; tables show medians over them (default: 3)"
    )
    parser.add_argument(
        "--ray-python",
        type=Path,
        help="Python with Ray installed (default: .venv-bench/bin/python if it exists)",
    )
    parser.add_argument(
        "--json", type=Path, help="file for all values (default: bench/results/TIME.json)"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: must be 1 or more")
    if options.ray_python is not None and not options.ray_python.exists():
        parser.error(f"--ray-python {options.ray_python}: no such file")
    try:
        options.rows = choose(ROWS, options.only, options.group)
    except ValueError as error:
        parser.error(str(error))
    return options


def measured(rows: Sequence[Row], rounds: int, ray_python: str | None) -> Iterator[Measurement]:
    """Yield the measurements: first those on this machine, then those on a Ray cluster."""
    contenders = [contender for row in rows for contender in row.contenders]
    with_ray = frozenset(contender.name for contender in contenders if contender.needs_ray)
    absent = frozenset() if ray_python else with_ray
    with Inputs() as inputs:
        for planned in planned_runs(
            [row for row in rows if row.group != "cluster"], rounds, absent
        ):
            yield measure(
                planned,
                ray_python,
                {},
                inputs.folder(planned.row.input) if planned.row.input else None,
            )
    on_cluster = [row for row in rows if row.group == "cluster"]
    if on_cluster and ray_python:
        with running_cluster(ray_python, PYTHON_PATH) as variables:
            for planned in planned_runs(on_cluster, rounds):
                yield measure(planned, ray_python, variables)


def write(
    path: Path,
    machine: dict[str, object],
    rounds: int,
    lines: Sequence[Line],
    measurements: Sequence[Measurement],
) -> None:
    """Write all values measured so far."""
    content = {
        "machine": machine,
        "rounds": rounds,
        "lines": [dataclasses.asdict(line) for line in lines],
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def describe(row: Row, measurement: Measurement) -> str:
    """Return one line of progress."""
    shown = [
        f"{number(measurement.values[metric.key])} {metric.unit}".strip()
        for metric in row.metrics
        if metric.key in measurement.values
    ]
    killed = f", {measurement.killed_after} processes killed" if measurement.killed_after else ""
    outcome = "failed: " + measurement.failure if measurement.failure else ", ".join(shown)
    return (
        f"{row.name} round {measurement.round + 1} {measurement.contender}: {outcome}"
        f" (load {measurement.load_before:.1f}{killed})"
    )


def main() -> int:
    """Run the benchmarks; return 1 if a measurement of syncline failed. A missed target is no
    failure.
    """
    options = parse()
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    now = datetime.datetime.now()
    path: Path = options.json or ROOT / "bench/results" / f"{now:%Y%m%d-%H%M%S}.json"
    ray_python: Path | None = options.ray_python or (
        DEFAULT_RAY_PYTHON if DEFAULT_RAY_PYTHON.exists() else None
    )
    # Not resolved: the target of the link is outside of the virtual environment.
    interpreter = str(ray_python.absolute()) if ray_python else None
    machine = {"started": now.isoformat(timespec="seconds"), **facts(interpreter)}

    named = {row.name: row for row in options.rows}
    measurements: list[Measurement] = []
    try:
        for measurement in measured(options.rows, options.rounds, interpreter):
            measurements.append(measurement)
            console.print(describe(named[measurement.row], measurement), markup=False)
    finally:
        lines = compare_all(options.rows, measurements)
        write(path, machine, options.rounds, lines, measurements)
    for table in render(lines):
        console.print(table)
    if interpreter is None:
        console.print(
            "Ray was not measured: install it with `make bench-setup`, or pass --ray-python."
        )
    console.print(f"values: {path}", soft_wrap=True)
    return int(
        any(
            measurement.failure is not None and measurement.contender == OURS
            for measurement in measurements
        )
    )


if __name__ == "__main__":
    sys.exit(main())
