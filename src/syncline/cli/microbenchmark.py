"""`microbenchmark`: how quick tasks, actor calls and objects are, here or on a cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict

import click

from syncline.cli import engines
from syncline.cli.measuring import Measurement, measurements
from syncline.cli.output import console, json_option, print_json, table


@click.command(name="microbenchmark")
@engines.address_option
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="For each measurement.",
)
@json_option
def microbenchmark_command(address: str | None, seconds: float, as_json: bool) -> None:
    """Measure tasks, actor calls and objects: on the cluster if there is an address, else on this
    machine.

    The numbers are those of a machine that does nothing else; two runs are compared on the same
    machine only.
    """
    chosen = engines.chosen_address(address)
    engine: AbstractContextManager[None] = (
        engines.this_machine() if chosen is None else engines.cluster(chosen)
    )
    name = "this machine" if chosen is None else chosen
    done: list[Measurement] = []
    with engine:
        for measurement in measurements(seconds):
            done.append(measurement)
    if as_json:
        print_json(
            {
                "engine": name,
                "seconds": seconds,
                "measurements": [asdict(measurement) for measurement in done],
            }
        )
        return
    rows = [
        (measurement.name, _number(measurement.value), measurement.unit) for measurement in done
    ]
    console().print(table((f"on {name}", "rate", ""), rows, right=("rate",)))


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"
