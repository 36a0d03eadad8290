"""`stack`: where the ranks of a run that goes on stand, ranks at the same place together, the odd
one out marked.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

from syncline.cli import records
from syncline.cli.engines import address_option
from syncline.cli.live_runs import reached
from syncline.cli.output import json_option, print_json
from syncline.dashboard.odd_ones import Standing, members_text, readable, standings
from syncline.runs import Run


@click.command(name="stack")
@click.argument("run", required=False)
@click.option(
    "--rank",
    "--trial",
    "member",
    metavar="RANK",
    help="Only this rank's; of a search, this trial's.",
)
@click.option("--storage-path", help="Where runs are kept: a directory or a URI.")
@address_option
@json_option
def stack_command(
    run: str | None,
    member: str | None,
    storage_path: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Where the workers of RUN stand, as Python stacks: a run's name, path or URI; by default the
    latest run.

    Ranks at the same place are shown together, and those first that the others seem to wait for.
    """
    record = records.open_run(run, records.place(storage_path))
    with reached(record, address) as live:
        stacks = live.stacks(None if member is None else [member])
    found = standings(stacks)
    if as_json:
        print_json(_as_json(record, stacks, found))
    else:
        click.echo(stacks_text(found))


def stacks_text(found: Sequence[Standing]) -> str:
    """All places below each other."""
    return "\n\n".join(
        f"{_heading(place)}\n{textwrap.indent(readable(place.stack), '  ')}" for place in found
    )


def _heading(place: Standing) -> str:
    mark = "  <-- the odd one out" if place.is_odd else ""
    return (
        f"[{members_text(place.members)}]" + ("  waiting for others" if place.waits else "") + mark
    )


def _as_json(run: Run, stacks: dict[str, str], found: Sequence[Standing]) -> dict[str, object]:
    places = [
        {
            "members": list(place.members),
            "odd": place.is_odd,
            "waits": place.waits,
            "stack": readable(place.stack),
        }
        for place in found
    ]
    return {"run": run.name, "path": run.path, "places": places, "stacks": stacks}
