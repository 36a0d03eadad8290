"""`doctor`: check nodes and print a line for each subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.table import Table
from rich.text import Text

from syncline.cli import engines, find_runs
from syncline.cli.doctor.checks import Check, run_checks
from syncline.cli.doctor.examination import examine
from syncline.cli.doctor.findings import Examination
from syncline.cli.doctor.node_probes import Cluster, ThisMachine, node_names
from syncline.cli.output import FAILED, console, json_option, print_json, state
from syncline.core import api

LIMIT_S = 20.0


@click.command(name="doctor")
@engines.address_option
@click.option(
    "--storage-path", help="Parent directory or URI of the runs; by default that of the settings."
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=LIMIT_S,
    show_default=True,
    help="Seconds for one connection, file or all-reduce.",
)
@json_option
@click.pass_context
def doctor_command(
    context: click.Context,
    address: str | None,
    storage_path: str | None,
    limit_s: float,
    as_json: bool,
) -> None:
    """Check every node of the cluster, or this machine if there is none, and print remedies.

    Exit code 1 if a line is wrong; a warning does not change it.
    """
    storage = find_runs.storage_directory(storage_path).path
    facts = _cluster(engines.chosen_address(address), storage, limit_s) or _this_machine(
        storage, limit_s
    )
    checks = run_checks(facts)
    wrong = any(check.status == "wrong" for check in checks)
    if as_json:
        names = [*facts.nodes, *facts.silent]
        print_json(
            {
                "ok": not wrong,
                "cluster": facts.cluster,
                "nodes": names,
                "checks": [asdict(check) for check in checks],
            }
        )
    else:
        console().print(lines(checks))
    context.exit(FAILED if wrong else 0)


def lines(checks: Sequence[Check]) -> Table:
    """Return a table with a row for each check, with the remedy below the message."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for check in checks:
        made.add_row(
            state(check.status),
            check.check,
            check.message if check.remedy is None else _with_remedy(check),
        )
    return made


def _with_remedy(check: Check) -> Text:
    return Text.assemble(check.message, "\n", ("remedy: ", "bold"), check.remedy or "")


def _this_machine(storage: str, limit_s: float) -> Examination:
    return examine(ThisMachine(), storage_path=storage, limit_s=limit_s, cluster=None)


def _cluster(address: str | None, storage: str, limit_s: float) -> Examination | None:
    """Examine the cluster; None without an address and a cluster to join."""
    with engines.cluster_if_any(address) as reached:
        if not reached:
            return None
        nodes = api.nodes()
        dead = node_names([node for node in nodes if not node.get("Alive")])
        shown = address or next(
            (node["NodeManagerAddress"] for node in nodes if node.get("Alive")), "auto"
        )
        team = Cluster(nodes)
        try:
            return examine(team, storage_path=storage, limit_s=limit_s, cluster=shown, dead=dead)
        finally:
            team.close()
