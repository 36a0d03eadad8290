"""`start` and `stop`: the cluster's processes on this machine, through Ray's own commands.

Unknown flags are passed on to `ray start`. Ray's output is printed only after a failure.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click

from syncline.cli import ray_command
from syncline.cli.output import CommandError, warn
from syncline.job_submission import cluster_token, http_api

DEFAULT_PORT = 6379
EVERY_INTERFACE = "0.0.0.0"
TOKEN_REQUIRED = "It requires this user's token: copy ~/.ray/auth_token to the other machines."
NO_TOKEN_REQUIRED = (
    "Anyone who can reach its ports can run programs on it: use a firewall, or see "
    "`ray get-auth-token`."
)
NO_JOBS = (
    "(not available: this cluster runs without the dashboard, which needs "
    '`pip install "syncline[cluster]"` here)'
)
_TOKEN_ASKED = "Token authentication is enabled"
_STARTED = "Ray runtime started"
_TAKES_JOBS = "ray job submit"
_NODE_ADDRESS = re.compile(r"Local node IP: (\S+)")
_JOIN_ADDRESS = re.compile(r"--address='?([^\s']+:\d+)'?")
_KEPT_LINES = 40


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """Arguments of `ray start`, and facts for the announcement."""

    arguments: Sequence[str]
    """Arguments of `ray start`."""
    address: str | None
    """Address of the cluster to join; None for a head node."""
    port: int
    """Port of a head node."""
    dashboard_port: int
    """Port of a head node's dashboard, which accepts jobs."""
    dashboard_host: str | None
    """Interface of the dashboard; None for loopback."""
    warnings: Sequence[str]
    """Warnings about flags of older versions."""


def plan(options: dict[str, Any], others: Sequence[str]) -> StartPlan:
    """Translate current and older flags to those of `ray start`.

    Raises:
        click.UsageError: The flags contradict each other.
    """
    options = dict(options)
    warnings = _old_flags(options)
    head, address = options["head"], options["address"]
    if bool(head) == bool(address):
        raise click.UsageError(
            "pass --head to start a cluster here, or --address HOST:PORT to join one"
            if not head
            else f"--head starts a cluster, and --address={address} joins one: pass only one"
        )
    if options["resources"] is not None:
        _check_resources(options["resources"])
    if not head and options["port"] is not None:
        raise click.UsageError(
            f"--port={options['port']} is the port of a head node: omit it, because --address "
            "contains the port of the cluster to join"
        )
    port = DEFAULT_PORT if options["port"] is None else options["port"]
    arguments = ["start", "--head", f"--port={port}"] if head else ["start", f"--address={address}"]
    for name in (
        "node_ip_address",
        "num_cpus",
        "num_gpus",
        "resources",
        "object_store_memory",
        "temp_dir",
    ):
        if options[name] is not None:
            arguments.append(f"--{name.replace('_', '-')}={options[name]}")
    if head:
        arguments += [
            f"--{name.replace('_', '-')}={options[name]}"
            for name in ("dashboard_host", "dashboard_port")
            if options[name]
        ]
    if options["block"]:
        arguments.append("--block")
    return StartPlan(
        arguments=[*arguments, *others],
        address=address,
        port=port,
        dashboard_port=options["dashboard_port"] or http_api.DEFAULT_PORT,
        dashboard_host=options["dashboard_host"],
        warnings=warnings,
    )


def _old_flags(options: dict[str, Any]) -> list[str]:
    """Translate older flags in place; return the warnings."""
    warnings = []
    if options.pop("redis_password") is not None:
        warnings.append(
            "--redis-password is ignored: clusters have no such password; protect their ports "
            "with a firewall"
        )
    for old, new in (("redis_port", "port"), ("redis_address", "address")):
        value = options.pop(old)
        if value is not None:
            options[new] = value if options[new] is None else options[new]
            warnings.append(f"--{old.replace('_', '-')} is now called --{new}")
    return warnings


def _check_resources(text: str) -> None:
    try:
        resources = json.loads(text)
    except ValueError:
        resources = None
    if not isinstance(resources, dict) or not all(
        isinstance(amount, (int, float)) for amount in resources.values()
    ):
        raise click.UsageError(
            f"--resources={text} is not a JSON object of amounts: write for example "
            "--resources='{\"ssd\": 2}'"
        )


def announcement(started: StartPlan, output: str) -> str:
    """Return the message after a successful start: the next commands, from Ray's output."""
    if started.address is not None:
        return (
            f"This machine has joined the cluster at {started.address}.\n"
            "  leave              syncline stop"
        )
    found = _NODE_ADDRESS.search(output)
    host = found.group(1) if found else "127.0.0.1"
    joined = _JOIN_ADDRESS.search(output)
    address = joined.group(1) if joined else f"{host}:{started.port}"
    needs_token = _TOKEN_ASKED in output or bool(cluster_token.is_switched_on())
    first = "RAY_AUTH_MODE=token " if needs_token else ""
    dashboard_host = host if started.dashboard_host == EVERY_INTERFACE else "127.0.0.1"
    dashboard = f"http://{dashboard_host}:{started.dashboard_port}"
    submit = f"{first}syncline submit --address={dashboard} --working-dir . -- python script.py"
    return "\n".join(
        (
            f"The cluster is running at {address}.",
            f"  join               {first}syncline start --address={address}",
            f"  run a program      {first}SYNCLINE_ADDRESS={address} python script.py",
            f"  or in Python       syncline.init(address={address!r})",
            f"  submit a program   {submit if _TAKES_JOBS in output else NO_JOBS}",
            f"  show its status    {first}syncline status --address={address}",
            "  stop it            syncline stop",
            TOKEN_REQUIRED if needs_token else NO_TOKEN_REQUIRED,
        )
    )


@click.command(
    name="start",
    context_settings={"ignore_unknown_options": True},
    epilog="Other flags are passed on to `ray start`.",
)
@click.option("--head", is_flag=True, help="Start a cluster with this machine as its head node.")
@click.option("--address", metavar="HOST:PORT", help="Join the cluster with that head node.")
@click.option("--node-ip-address", metavar="IP", help="Address of this node for the other nodes.")
@click.option(
    "--port", type=int, help=f"Port of the head node; default {DEFAULT_PORT}, 0 for any free port."
)
@click.option(
    "--dashboard-host",
    metavar="HOST",
    help="Interface of Ray's dashboard and job API; 0.0.0.0 for all.",
)
@click.option("--dashboard-port", type=int, help=f"Port of both; default {http_api.DEFAULT_PORT}.")
@click.option("--num-cpus", type=int, help="CPUs for tasks; default all of this machine.")
@click.option("--num-gpus", type=int, help="GPUs for tasks; default all of this machine.")
@click.option("--resources", metavar="JSON", help="Custom resources: '{\"ssd\": 2}'.")
@click.option("--object-store-memory", type=int, metavar="BYTES", help="Shared memory for objects.")
@click.option(
    "--temp-dir", type=click.Path(), help="Directory of sessions and logs, equal on every node."
)
@click.option(
    "--block", is_flag=True, help="Run in the foreground, for containers and service managers."
)
@click.option("--redis-port", type=int, hidden=True)
@click.option("--redis-address", hidden=True)
@click.option("--redis-password", hidden=True)
@click.argument("others", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def start_command(context: click.Context, /, others: tuple[str, ...], **options: object) -> None:
    """Start a cluster on this machine, or join one.

    Exit code: that of `ray start`.
    """
    planned = plan(options, others)
    for text in planned.warnings:
        warn(text)
    if options["block"]:
        context.exit(_run_in_foreground(planned))
    code, output = ray_command.quietly(planned.arguments)
    if code:
        _show_failure(output, code)
    else:
        click.echo(announcement(planned, output))
    context.exit(code)


def _run_in_foreground(planned: StartPlan) -> int:
    """Start with --block, announce the cluster, and wait for its end; return the exit code."""
    process = subprocess.Popen(
        [*ray_command.command(), *planned.arguments],
        env={**ray_command.environment(), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )

    was_terminated = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal was_terminated
        was_terminated = True
        process.send_signal(number)

    former = signal.signal(signal.SIGTERM, pass_on)
    seen: deque[str] = deque(maxlen=_KEPT_LINES)
    announced = False
    try:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if not announced and _STARTED in line:
                announced = True
            elif announced and "--block" in line:
                click.echo(
                    announcement(planned, "".join(seen))
                    + "\n  (running in the foreground; Ctrl-C stops it)"
                )
        code = process.wait()
    except KeyboardInterrupt:
        # The terminal has sent the signal to Ray's process too, which stops the node.
        process.wait()
        return 130
    finally:
        signal.signal(signal.SIGTERM, former)
    if code and not announced:
        _show_failure("".join(seen), code)
    elif was_terminated:
        warn("the node was stopped by SIGTERM")
    elif code > 0:
        warn(f"the node ended with exit code {code}. Its last output:\n{''.join(seen)}")
    return code if code >= 0 else 128 - code


def _show_failure(output: str, code: int) -> None:
    warn(f"the node did not start (exit code {code}). Ray's output:\n{ray_command.tail(output)}")


@click.command(name="stop")
@click.option("--force", is_flag=True, help="Kill immediately with SIGKILL.")
@click.option(
    "--grace-period",
    type=int,
    metavar="SECONDS",
    help="Seconds that processes may take to end before they are killed.",
)
@click.pass_context
def stop_command(context: click.Context, force: bool, grace_period: int | None) -> None:
    """Stop every Ray process on this machine that this user may stop, of any cluster.

    Runs on other machines lose this node. Exit code: that of `ray stop`.
    """
    if force and grace_period is not None:
        raise click.UsageError(
            "--force does not wait, so it excludes --grace-period: pass only one of them"
        )
    arguments = [
        "stop",
        *(["--force"] if force else []),
        *([f"--grace-period={grace_period}"] if grace_period is not None else []),
    ]
    code, output = ray_command.quietly(arguments)
    if code:
        raise CommandError(
            f"not all cluster processes could be stopped (exit code {code}). Ray's output:\n"
            f"{ray_command.tail(output)}",
            exit_code=code,
        )
    others = output.count("Could not terminate")
    if others:
        warn(
            f"processes of another user's cluster ({others}) keep running: only that user, or "
            "root, may stop them"
        )
    if "Did not find any active Ray processes" in output:
        click.echo(
            "This user has no cluster on this machine."
            if others
            else "No cluster runs on this machine."
        )
    else:
        count = re.search(r"Stopped all (\d+)", output)
        click.echo(
            f"Stopped {count.group(1) + ' ' if count else ''}cluster processes on this machine."
        )
