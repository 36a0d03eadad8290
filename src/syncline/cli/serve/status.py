"""`status` and `controller-health`: tables of applications, deployments and replicas."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from syncline.cli.output import FAILED, CommandError, ago, console, json_option, print_json, table
from syncline.cli.serve import running
from syncline.serve.client import ServeClient
from syncline.serve.controller.messages import DeploymentDetails, ServeDetails
from syncline.serve.program_client import ProgramClient
from syncline.serve.schema import ApplicationStatusOverview

PROBLEMS = ("DEPLOY_FAILED", "UNHEALTHY")
SHOWN_EVENTS = 10
"""Number of events of `status -v`."""
_STYLES: Mapping[str, str] = {
    **dict.fromkeys(("RUNNING", "HEALTHY"), "green"),
    **dict.fromkeys(PROBLEMS, "bold red"),
    **dict.fromkeys(("DEPLOYING", "UPDATING", "UPSCALING", "DOWNSCALING", "DELETING"), "yellow"),
    **dict.fromkeys(("STARTING", "STOPPING", "RECOVERING"), "yellow"),
}


@click.command(name="status")
@click.option("-n", "--name", help="Only this application.")
@click.option("-v", "--verbose", is_flag=True, help="Show replicas and the latest events as well.")
@running.serve_options
@json_option
@click.pass_context
def status_command(
    context: click.Context,
    name: str | None,
    verbose: bool,
    address: str | None,
    pid: int | None,
    as_json: bool,
) -> None:
    """Show applications, deployments and their replicas.

    Exit code 1 if an application is DEPLOY_FAILED or UNHEALTHY, or if NAME does not run.
    """
    with running.running_serve(address, pid) as client:
        details = None if client is None else client.details()
        prefixes = {} if client is None or details is None else _prefixes(client, details)
    apps = {} if details is None else details.status.applications
    if name is not None and name not in apps:
        raise CommandError(
            f"application {name!r} does not run. Applications: {', '.join(apps) or 'none'}"
        )
    chosen = {key: app for key, app in apps.items() if name in (None, key)}
    if as_json:
        print_json(_as_json(details, chosen))
    elif details is None or client is None:
        click.echo("serve is not running")
    else:
        click.echo(_heading(client, details))
        _print_applications(details, chosen, prefixes, verbose=verbose)
    context.exit(FAILED if any(app.status in PROBLEMS for app in chosen.values()) else 0)


def _prefixes(client: ServeClient, details: ServeDetails) -> dict[str, str | None]:
    infos = {name: client.application(name) for name in details.status.applications}
    return {name: info.route_prefix for name, info in infos.items() if info is not None}


def _as_json(
    details: ServeDetails | None, chosen: Mapping[str, ApplicationStatusOverview]
) -> dict[str, Any]:
    if details is None:
        return {"proxies": {}, "applications": {}, "http_addresses": {}}
    status = details.status.to_dict()
    status["applications"] = {name: status["applications"][name] for name in chosen}
    return {**status, "http_addresses": {k: list(v) for k, v in details.http_addresses.items()}}


def _heading(client: ServeClient, details: ServeDetails) -> str:
    where = "serve on the cluster"
    if isinstance(client, ProgramClient):
        program = client.program
        command = shlex.join(program.command)
        where = f"serve of process {program.pid}, since {ago(program.started)} ({command})"
    proxies = list(details.status.proxies.values())
    if not proxies:
        return f"{where}, without HTTP"
    states = ", ".join(sorted({state.value for state in proxies}))
    count = f"{len(proxies)} {'proxy' if len(proxies) == 1 else 'proxies'}"
    return f"{where}, {count}: {states}"


def _print_applications(
    details: ServeDetails,
    chosen: Mapping[str, ApplicationStatusOverview],
    prefixes: Mapping[str, str | None],
    *,
    verbose: bool,
) -> None:
    if not chosen:
        click.echo("No applications")
        return
    click.echo()
    console().print(applications_table(details, chosen, prefixes))
    click.echo()
    deployments = [each for each in details.deployments if each.id.app in chosen]
    console().print(deployments_table(deployments, chosen))
    if verbose:
        click.echo()
        console().print(replicas_table(deployments))
        click.echo()
        for event in details.events[-SHOWN_EVENTS:]:
            click.echo(event)
    for title, message in _messages(chosen):
        click.echo(f"\n{title}:\n{message.rstrip()}")


def applications_table(
    details: ServeDetails,
    chosen: Mapping[str, ApplicationStatusOverview],
    prefixes: Mapping[str, str | None],
) -> Table:
    """Return a table with a row for each application."""
    base = ""
    if details.http_addresses:
        host, port = next(iter(details.http_addresses.values()))
        base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    rows = []
    for name, app in chosen.items():
        prefix = prefixes.get(name)
        url = "-" if prefix is None else f"{base}{prefix}"
        rows.append((name, _state(app.status.value), url, ago(app.last_deployed_time_s)))
    return table(
        ("application", "status", "address", "deployed"),
        rows,
        right=("deployed",),
        folding=("application", "address"),
    )


def deployments_table(
    deployments: Sequence[DeploymentDetails], chosen: Mapping[str, ApplicationStatusOverview]
) -> Table:
    """Return a table with a row for each deployment."""
    rows = []
    for each in deployments:
        overview = chosen[each.id.app].deployments.get(each.id.name)
        states = {} if overview is None else overview.replica_states
        others = [f"{n} {state.value.lower()}" for state, n in states.items() if state != "RUNNING"]
        count = f"{states.get('RUNNING', 0)} of {each.target_replicas}"  # type: ignore[call-overload]
        rows.append(
            (
                each.id.app,
                each.id.name,
                _state("-" if overview is None else overview.status.value),
                ", ".join([count, *others]),
                str(sum(replica.ongoing for replica in each.replicas)),
                str(each.queued),
                each.last_decision or "-",
            )
        )
    columns = ["application", "deployment", "status", "replicas", "in flight", "queued", "scaling"]
    if all(row[-1] == "-" for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    return table(
        columns,
        rows,
        right=("in flight", "queued"),
        folding=("application", "deployment", "replicas", "scaling"),
    )


def replicas_table(deployments: Sequence[DeploymentDetails]) -> Table:
    """Return a table with a row for each replica."""
    now = time.time()
    rows = [
        (
            replica.replica_id,
            _state(replica.state),
            "-" if replica.pid is None else str(replica.pid),
            ago(replica.started_s, now),
            "-" if replica.constructor_s is None else f"{replica.constructor_s:.2f} s",
            str(replica.ongoing),
            replica.message,
        )
        for each in deployments
        for replica in each.replicas
    ]
    columns = ["replica", "state", "pid", "age", "constructor", "in flight", "message"]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    return table(
        columns,
        rows,
        right=("pid", "age", "constructor", "in flight"),
        folding=("replica", "message"),
    )


def _state(name: str) -> Text:
    return Text(name, style=_STYLES.get(name, ""))


def _messages(chosen: Mapping[str, ApplicationStatusOverview]) -> list[tuple[str, str]]:
    """Return the messages of applications, and those of deployments that do not repeat them."""
    found = []
    for name, app in chosen.items():
        if app.message:
            found.append((name, app.message))
        found += [
            (f"{name}#{key}", deployment.message)
            for key, deployment in app.deployments.items()
            if deployment.message and deployment.message not in app.message
        ]
    return found


@click.command(name="controller-health")
@running.serve_options
@json_option
def controller_health_command(address: str | None, pid: int | None, as_json: bool) -> None:
    """Show whether the controller answers, how fast, and which processes it feeds.

    Exit code 1 if it does not run or does not answer.
    """
    with running.needed_serve(address, pid) as client:
        began = time.monotonic()
        try:
            details = client.details()
        except OSError as error:
            raise CommandError(f"the controller does not answer: {error}") from error
        answer_ms = (time.monotonic() - began) * 1000
    replicas = [replica for each in details.deployments for replica in each.replicas]
    health = {
        "answer_ms": round(answer_ms, 2),
        "table_version": details.table_version,
        "subscribers": list(details.subscribers),
        "replicas": len(replicas),
        "events": list(details.events),
    }
    if as_json:
        print_json(health)
        return
    click.echo(
        f"The controller answered in {answer_ms:.1f} ms. Its routing table has version "
        f"{details.table_version}; {len(details.subscribers)} processes subscribe to it."
    )
    for subscriber in details.subscribers:
        click.echo(f"  {subscriber}")
    for event in details.events[-SHOWN_EVENTS:]:
        click.echo(event)
