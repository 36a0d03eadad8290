"""Measures, prints the tables, writes the numbers.

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
from bench.rows import OURS, RAY, ROWS, Group, Row
from bench.schedule import choose, turns
from bench.summary import Line, Measurement, compare_all
from bench.table import number, render

DEFAULT_RAY_PYTHON = ROOT / ".venv-bench/bin/python"
WIDTH_WITHOUT_TERMINAL = 200


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of one run."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="syncline beside its peers, alternating, as ratios"
    )
    names = ", ".join(row.name for row in ROWS)
    parser.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        metavar="ROW",
        help=f"rows to measure (all): {names}",
    )
    parser.add_argument(
        "--group", choices=get_args(Group), help="rows of one group only (all groups)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds; the table shows medians over them (3)"
    )
    parser.add_argument(
        "--ray-python",
        type=Path,
        help="an interpreter that has Ray (.venv-bench/bin/python if it exists)",
    )
    parser.add_argument(
        "--json", type=Path, help="file for the raw numbers (bench/results/TIME.json)"
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one round is needed")
    if options.ray_python is not None and not options.ray_python.exists():
        parser.error(f"--ray-python {options.ray_python}: there is no such file")
    try:
        options.rows = choose(ROWS, options.only, options.group)
    except ValueError as error:
        parser.error(str(error))
    return options


def measured(rows: Sequence[Row], rounds: int, ray_python: str | None) -> Iterator[Measurement]:
    """The measurements as they are made: first those on this machine alone, then, while a cluster
    is up, those on it.
    """
    absent = frozenset() if ray_python else frozenset({RAY})
    with Inputs() as inputs:
        for turn in turns([row for row in rows if row.group != "cluster"], rounds, absent):
            yield measure(
                turn, ray_python, {}, inputs.folder(turn.row.input) if turn.row.input else None
            )
    on_cluster = [row for row in rows if row.group == "cluster"]
    if on_cluster and ray_python:
        with running_cluster(ray_python, PYTHON_PATH) as variables:
            for turn in turns(on_cluster, rounds):
                yield measure(turn, ray_python, variables)


def write(
    path: Path,
    machine: dict[str, object],
    rounds: int,
    lines: Sequence[Line],
    measurements: Sequence[Measurement],
) -> None:
    """All numbers of this run, whatever has been measured so far."""
    content = {
        "machine": machine,
        "rounds": rounds,
        "lines": [dataclasses.asdict(line) for line in lines],
        "measurements": [dataclasses.asdict(measurement) for measurement in measurements],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def describe(row: Row, measurement: Measurement) -> str:
    """One line of progress."""
    shown = [
        f"{number(measurement.values[metric.key])} {metric.unit}".strip()
        for metric in row.metrics
        if metric.key in measurement.values
    ]
    extra = (
        f", {measurement.killed_after} processes left behind" if measurement.killed_after else ""
    )
    what = "failed: " + measurement.failure if measurement.failure else ", ".join(shown)
    return f"{row.name} round {measurement.round + 1} {measurement.contender}: {what} (load {measurement.load_before:.1f}{extra})"


def main() -> int:
    """Measures; returns 1 if a measurement of syncline failed, else 0: a missed target is a
    result.
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
    # The path stays as written: resolving the link would leave the virtual environment.
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
            "Ray was not measured: `make bench-setup` makes an environment with it, --ray-python names another one."
        )
    console.print(f"raw numbers: {path}", soft_wrap=True)
    return int(
        any(
            measurement.failure is not None and measurement.contender == OURS
            for measurement in measurements
        )
    )


if __name__ == "__main__":
    sys.exit(main())
