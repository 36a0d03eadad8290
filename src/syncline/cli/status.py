"""`status` and `nodes`: what a cluster has and what of it is in use; with `status`, the programs of
this machine and the latest runs too, which need no cluster.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.table import Table

from syncline.cli import engines, records
from syncline.cli.output import (
    CommandError,
    ago,
    amount,
    console,
    json_option,
    print_json,
    state,
    table,
)
from syncline.cli.runs import runs_table
from syncline.core import api
from syncline.dashboard.engines import (
    MachineLook,
    Node,
    ProgramLook,
    node_of,
    programs_here,
    resources_in_use,
    sorted_nodes,
)

LIMIT_S = 120.0
PAUSE_S = 0.5
"""Between two looks at the nodes."""
SHOWN_NODES = 10
"""Nodes that `status` shows; `nodes` shows all."""
LATEST_RUNS = 5
"""Runs that `status` shows besides those that are running."""


def nodes_table(nodes: Sequence[Node]) -> Table:
    """A row for each node."""
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
        ("address", "host", "state", "resources", "id"), rows, yielding=("host", "resources")
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
    help="Wait until the cluster has so many living nodes.",
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0),
    default=LIMIT_S,
    show_default=True,
    help="Seconds to wait at most.",
)
@json_option
def nodes_command(address: str | None, wait_for: int | None, limit_s: float, as_json: bool) -> None:
    """The nodes of the cluster and what each one has.

    With --wait-for also while the cluster itself is starting. Exit code 1 if there is none, or
    fewer nodes than waited for.
    """
    chosen = engines.chosen_address(address) or "auto"
    nodes = _nodes(chosen) if wait_for is None else _awaited_nodes(chosen, wait_for, limit_s)
    if as_json:
        print_json({"nodes": [asdict(node) for node in nodes]})
    else:
        console().print(nodes_table(nodes))


def _nodes(address: str) -> list[Node]:
    with engines.cluster(address):
        return sorted_nodes(node_of(fields) for fields in api.nodes())


def _awaited_nodes(address: str, count: int, limit_s: float) -> list[Node]:
    """The nodes, once `count` of them live. CommandError if that takes longer than the limit."""
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
                f"after {limit_s:g} s {seen}: look at what `syncline start` said on the missing ones, or wait longer with --limit"
            )
        time.sleep(PAUSE_S)


@click.command(name="status")
@engines.address_option
@click.option("--storage-path", help="Where runs are kept: a directory or a URI.")
@json_option
def status_command(address: str | None, storage_path: str | None, as_json: bool) -> None:
    """Nodes, resources in use, the programs of this machine, and the runs: those that are running
    and the latest others.

    Without a cluster programs and runs alone. Exit code 1 if an address was given and no cluster is
    there.
    """
    storage = records.place(storage_path)
    cluster = _cluster(engines.chosen_address(address))
    machine = programs_here()
    runs = records.runs_below(storage)
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
        click.echo(
            f"Cluster {cluster['address']}: {cluster['nodes_alive']} node{'s'[: cluster['nodes_alive'] != 1]} alive{dead}"
        )
        console().print(nodes_table(cluster["nodes"][:SHOWN_NODES]))
        if len(cluster["nodes"]) > SHOWN_NODES:
            click.echo(f"… and {len(cluster['nodes']) - SHOWN_NODES} more: `syncline nodes`")
        click.echo()
        console().print(resources_table(cluster["resources"]))
    if machine.programs:
        click.echo()
        _print_programs(machine)
    click.echo()
    click.echo(f"Runs in {storage.path}: {len(running)} running, {len(runs)} in all")
    if shown:
        console().print(runs_table(shown))


def resources_table(resources: Mapping[str, Mapping[str, float]]) -> Table:
    """A row for each resource: in use, of how much."""
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


def _print_programs(machine: MachineLook) -> None:
    click.echo(
        f"Programs with workers of their own on this machine: {len(machine.programs) + machine.others}"
    )
    console().print(programs_table(machine.programs))
    if machine.others:
        click.echo(f"… and {machine.others} that began earlier")


def programs_table(programs: Sequence[ProgramLook]) -> Table:
    """A row for each program."""
    rows = [
        (str(program.pid), ago(program.started), _cpus(program), program.command)
        for program in programs
    ]
    return table(
        ("pid", "age", "CPUs in use", "command"), rows, right=("pid", "age"), yielding=("command",)
    )


def _cpus(program: ProgramLook) -> str:
    if program.engine is None:
        return "does not answer"
    both = program.engine.resources.get("CPU", {"used": 0.0, "total": 0.0})
    return f"{both['used']:g} of {both['total']:g}"


def program_as_json(program: ProgramLook) -> dict[str, Any]:
    """What `--json` tells of a program; what depends on its engine is null where that does not
    answer.
    """
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
    """What is known of the cluster; None if no address was given and none can be joined here."""
    with engines.cluster_if_any(address) as reached:
        if not reached:
            return None
        nodes = sorted_nodes(node_of(fields) for fields in api.nodes())
        resources = resources_in_use(api.cluster_resources(), api.available_resources())
    head = next((node.address for node in nodes if node.head and node.alive), "")
    return {
        "address": address or head,
        "nodes_alive": sum(node.alive for node in nodes),
        "nodes_dead": sum(not node.alive for node in nodes),
        "nodes": nodes,
        "resources": resources,
    }
