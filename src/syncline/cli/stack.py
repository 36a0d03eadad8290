"""`stack`: print the stacks of an active run's ranks, grouped, with outliers marked."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import click

from syncline.cli import find_runs
from syncline.cli.engines import address_option
from syncline.cli.find_runs import reached
from syncline.cli.output import json_option, print_json
from syncline.runs import Run
from syncline.runs.outliers import StackGroup, members_text, readable, stack_groups


@click.command(name="stack")
@click.argument("run", required=False, shell_complete=find_runs.complete_run)
@click.option(
    "--rank",
    "--trial",
    "member",
    metavar="RANK",
    help="Print this rank only; for a search, this trial.",
)
@click.option(
    "--calls",
    is_flag=True,
    help="Print the last collective calls of each rank, too, from torch's flight recorder.",
)
@find_runs.storage_option
@address_option
@json_option
def stack_command(
    run: str | None,
    member: str | None,
    calls: bool,
    storage_path: str | None,
    address: str | None,
    as_json: bool,
) -> None:
    """Print the Python stacks of RUN's workers: a run's name, path or URI; default the latest.

    Ranks with equal stacks are grouped. Outliers, which the others seem to wait for, come first.
    If the diagnosis has named a rank that delays or stops the training, its verdict is printed
    above.
    """
    record = find_runs.open_run(run, find_runs.storage_directory(storage_path))
    with reached(record, address) as live:
        stacks = live.stacks(None if member is None else [member])
        diagnosis = live.diagnosis()
    found = stack_groups(stacks)
    if as_json:
        print_json(_as_json(record, stacks, found) | {"diagnosis": diagnosis})
        return
    verdict = diagnosis.get("verdict")
    if isinstance(verdict, Mapping):
        click.echo(f"{verdict.get('text')}\n")
    click.echo(stacks_text(found))
    if calls:
        click.echo(f"\n{calls_text(diagnosis)}")


def stacks_text(found: Sequence[StackGroup]) -> str:
    """Format all groups, one below the other."""
    return "\n\n".join(
        f"{_heading(place)}\n{textwrap.indent(readable(place.stack), '  ')}" for place in found
    )


def calls_text(diagnosis: Mapping[str, object]) -> str:
    """Format the last collective calls of the ranks, oldest first."""
    calls = diagnosis.get("calls")
    if not isinstance(calls, Mapping) or not calls:
        return "No collective calls are recorded: torch's flight recorder is off or empty."
    lines = ["Last collective calls, oldest first:"]
    for rank, own in sorted(calls.items(), key=lambda item: int(item[0])):
        lines += [f"[rank {rank}]", *(f"  {call}" for call in own)]
    return "\n".join(lines)


def _heading(place: StackGroup) -> str:
    mark = "  <-- outlier" if place.is_outlier else ""
    return (
        f"[{members_text(place.members)}]" + ("  waiting for others" if place.waits else "") + mark
    )


def _as_json(run: Run, stacks: dict[str, str], found: Sequence[StackGroup]) -> dict[str, object]:
    places = [
        {
            "members": list(place.members),
            "odd": place.is_outlier,
            "waits": place.waits,
            "stack": readable(place.stack),
        }
        for place in found
    ]
    return {"run": run.name, "path": run.path, "places": places, "stacks": stacks}
