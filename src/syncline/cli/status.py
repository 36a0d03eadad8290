"""`status` and `nodes`: resources of a cluster; with `status`, also local programs and runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from syncline.cli import engines, find_runs
from syncline.cli.output import CommandError, ago, console, json_option, print_json, state, table
from syncline.cli.runs import print_runs
from syncline.core import api
from syncline.dashboard.engine_snapshots import (
    MachineSnapshot,
    Node,
    ProgramSnapshot,
    machine_snapshot,
    parse_node,
    resources_in_use,
    sorted_nodes,
)
from syncline.dashboard.formatting import amount

LIMIT_S = 120.0
PAUSE_S = 0.5
"""Seconds between two reads of the node list."""
SHOWN_NODES = 10
"""Largest number of nodes in `status`; `nodes` prints all."""
LATEST_RUNS = 5
"""Number of runs in `status` besides the active ones."""


def nodes_table(nodes: Sequence[Node]) -> Table:
    """Return a table with a row for each node."""
    rows = [
        (
            node.address,
            node.hostname + (" (head)" if node.head else ""),
            state("alive" if node.alive else "dead"),
            _resources_text(node),
            node.node_id[:12],
        )
        for node in nodes
    ]
    return table(
        ("address", "host", "state", "resources", "id"), rows, folding=("host", "resources")
    )


def _resources_text(node: Node) -> str:
    models = f" ({', '.join(node.accelerators)})" if node.accelerators else ""
    return ", ".join(
        f"{amount(name, value)} {name}{models if name == 'GPU' else ''}"
        for name, value in node.resources.items()
        if name != "object_store_memory"
    )


@click.command(name="nodes")
@engines.address_option
@click.option(
    "--wait-for",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Wait until this number of nodes is alive.",
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0),
    default=LIMIT_S,
    show_default=True,
    help="Seconds to wait.",
)
@json_option
def nodes_command(address: str | None, wait_for: int | None, limit_s: float, as_json: bool) -> None:
    """List the nodes of the cluster and their resources.

    With --wait-for, also wait for the cluster itself. Exit code 1 if there is no cluster, or if
    nodes are missing after the limit.
    """
    chosen = engines.chosen_address(address) or "auto"
    nodes = _nodes(chosen) if wait_for is None else _awaited_nodes(chosen, wait_for, limit_s)
    if as_json:
        print_json({"nodes": [asdict(node) for node in nodes]})
    else:
        console().print(nodes_table(nodes))


def _nodes(address: str) -> list[Node]:
    with engines.connected(address):
        return sorted_nodes(parse_node(fields) for fields in api.nodes())


def _awaited_nodes(address: str, count: int, limit_s: float) -> list[Node]:
    """Wait until `count` nodes are alive. Raises CommandError after the limit."""
    until = time.monotonic() + limit_s
    while True:
        try:
            nodes = _nodes(address)
            seen = f"{sum(node.alive for node in nodes)} of {count} nodes are alive"
        except CommandError as error:
            nodes, seen = [], error.format_message()
        if sum(node.alive for node in nodes) >= count:
            return nodes
        if time.monotonic() >= until:
            raise CommandError(
                f"after {limit_s:g} s {seen}: check the output of `syncline start` on the missing "
                "nodes, or increase --limit"
            )
        time.sleep(PAUSE_S)


@click.command(name="status")
@engines.address_option
@click.option("--storage-path", help="Parent directory or URI of the runs.")
@json_option
def status_command(address: str | None, storage_path: str | None, as_json: bool) -> None:
    """Show nodes, resources in use, local programs, and the active and latest runs.

    Without a cluster, show programs and runs only. Exit code 1 if no cluster answers at the given
    address.
    """
    storage = find_runs.storage_directory(storage_path)
    cluster = _cluster(engines.chosen_address(address))
    machine = machine_snapshot()
    runs = find_runs.list_runs(storage)
    running = [run for run in runs if run.state == "running"]
    shown = running + [run for run in runs if run.state != "running"][:LATEST_RUNS]
    if as_json:
        described = cluster and {**cluster, "nodes": [asdict(node) for node in cluster["nodes"]]}
        programs = [program_as_json(program) for program in machine.programs]
        print_json(
            {
                "cluster": described,
                "programs": programs,
                "storage_path": storage.path,
                "runs": [run.as_json() for run in shown],
            }
        )
        return
    if cluster is None:
        click.echo("No cluster; programs start their own workers on this machine.")
    else:
        dead = f", {cluster['nodes_dead']} dead" if cluster["nodes_dead"] else ""
        count = cluster["nodes_alive"]
        click.echo(f"Cluster {cluster['address']}: {count} node{'s'[: count != 1]} alive{dead}")
        console().print(nodes_table(cluster["nodes"][:SHOWN_NODES]))
        if len(cluster["nodes"]) > SHOWN_NODES:
            click.echo(f"… and {len(cluster['nodes']) - SHOWN_NODES} more: `syncline nodes`")
        click.echo()
        console().print(resources_table(cluster["resources"]))
    if machine.programs:
        click.echo()
        _print_programs(machine)
    click.echo()
    click.echo(f"Runs in {storage.path}: {len(running)} running, {len(runs)} in total")
    if shown:
        print_runs(shown)


def resources_table(resources: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table with a row for each resource: in use and total."""
    rows = [
        (
            name,
            amount(name, both["used"]),
            amount(name, both["total"]),
            f"{100 * both['used'] / both['total']:.0f} %" if both["total"] else "-",
        )
        for name, both in resources.items()
    ]
    return table(("resource", "in use", "total", ""), rows, right=("in use", "total", ""))


def _print_programs(machine: MachineSnapshot) -> None:
    click.echo(
        f"Programs with their own workers on this machine: {len(machine.programs) + machine.others}"
    )
    console().print(programs_table(machine.programs))
    if machine.others:
        click.echo(f"… and {machine.others} older ones")


def programs_table(programs: Sequence[ProgramSnapshot]) -> Table:
    """Return a table with a row for each program."""
    rows = [
        (str(program.pid), ago(program.started), _cpus(program), program.command)
        for program in programs
    ]
    return table(
        ("pid", "age", "CPUs in use", "command"), rows, right=("pid", "age"), folding=("command",)
    )


def _cpus(program: ProgramSnapshot) -> str:
    if program.engine is None:
        return "does not answer"
    both = program.engine.resources.get("CPU", {"used": 0.0, "total": 0.0})
    return f"{both['used']:g} of {both['total']:g}"


def program_as_json(program: ProgramSnapshot) -> dict[str, Any]:
    """Return a program for `--json`; fields of its engine are null if it does not answer."""
    engine = program.engine
    return {
        "pid": program.pid,
        "command": program.command,
        "started": program.started,
        "resources": engine and engine.resources,
        "actors": engine and engine.actors.total,
        "tasks": engine and engine.tasks.total,
        "problem": program.problem,
    }


def _cluster(address: str | None) -> dict[str, Any] | None:
    """Return facts about the cluster; None without an address and a cluster to join."""
    with engines.cluster_if_any(address) as reached:
        if not reached:
            return None
        nodes = sorted_nodes(parse_node(fields) for fields in api.nodes())
        resources = resources_in_use(api.cluster_resources(), api.available_resources())
    head = next((node.address for node in nodes if node.head and node.alive), "")
    return {
        "address": address or head,
        "nodes_alive": sum(node.alive for node in nodes),
        "nodes_dead": sum(not node.alive for node in nodes),
        "nodes": nodes,
        "resources": resources,
    }
