"""`start` and `stop`: the cluster's processes on this machine, by Ray's own commands, told in our
words.

Flags that are not listed go to `ray start` as they are. What Ray prints is shown only where it
failed.
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

from syncline.cli import cluster_token, job_api, ray_command
from syncline.cli.output import CommandError, warn

DEFAULT_PORT = 6379
EVERY_INTERFACE = "0.0.0.0"
TOKEN_ASKED = (
    "It asks for this user's token: have the same ~/.ray/auth_token on the other machines."
)
NO_TOKEN_ASKED = "Whoever reaches its ports can run programs on it: keep them behind a firewall, or see `ray get-auth-token`."
NO_JOBS = '(this one takes no jobs: it runs without the dashboard, which needs `pip install "syncline[cluster]"` here)'
_TOKEN_ASKED = "Token authentication is enabled"
_STARTED = "Ray runtime started"
_TAKES_JOBS = "ray job submit"
_NODE_ADDRESS = re.compile(r"Local node IP: (\S+)")
_JOIN_ADDRESS = re.compile(r"--address='?([^\s']+:\d+)'?")
_KEPT_LINES = 40


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """What `start` will do."""

    arguments: Sequence[str]
    """For `ray start`."""
    address: str | None
    """Of the cluster that is joined; None for a head node."""
    port: int
    """Of a head node."""
    dashboard_port: int
    """Of a head node: where jobs are submitted."""
    dashboard_host: str | None
    """Where that listens; None for this machine alone."""
    warnings: Sequence[str]
    """What is said about flags of older versions."""


def plan(options: dict[str, Any], others: Sequence[str]) -> StartPlan:
    """Flags of today and of older versions as those of `ray start`. click.UsageError for what does
    not fit together.
    """
    options = dict(options)
    warnings = _old_flags(options)
    head, address = options["head"], options["address"]
    if bool(head) == bool(address):
        raise click.UsageError(
            "give --head to start a cluster here, or --address HOST:PORT to join one"
            if not head
            else f"--head starts a cluster, and --address={address} joins one: give only one of them"
        )
    if options["resources"] is not None:
        _check_resources(options["resources"])
    if not head and options["port"] is not None:
        raise click.UsageError(
            f"--port={options['port']} is the port of a head node: leave it out, the port to join is in --address"
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
        dashboard_port=options["dashboard_port"] or job_api.DEFAULT_PORT,
        dashboard_host=options["dashboard_host"],
        warnings=warnings,
    )


def _old_flags(options: dict[str, Any]) -> list[str]:
    """Translate in place; what to say."""
    said = []
    if options.pop("redis_password") is not None:
        said.append(
            "--redis-password is ignored: clusters have no such password any more; close their ports to strangers by a firewall"
        )
    for old, new in (("redis_port", "port"), ("redis_address", "address")):
        value = options.pop(old)
        if value is not None:
            options[new] = value if options[new] is None else options[new]
            said.append(f"--{old.replace('_', '-')} is called --{new} now")
    return said


def _check_resources(text: str) -> None:
    try:
        resources = json.loads(text)
    except ValueError:
        resources = None
    if not isinstance(resources, dict) or not all(
        isinstance(amount, (int, float)) for amount in resources.values()
    ):
        raise click.UsageError(
            f"--resources={text} is no JSON object of amounts: write for example --resources='{{\"ssd\": 2}}'"
        )


def announcement(started: StartPlan, output: str) -> str:
    """What is said when the node runs, taken from what Ray said: for each thing to do next, what to
    type.
    """
    if started.address is not None:
        return f"This machine has joined the cluster at {started.address}.\n  leave with         syncline stop"
    found = _NODE_ADDRESS.search(output)
    host = found.group(1) if found else "127.0.0.1"
    joined = _JOIN_ADDRESS.search(output)
    address = joined.group(1) if joined else f"{host}:{started.port}"
    asks_for_token = _TOKEN_ASKED in output or bool(cluster_token.is_switched_on())
    first = "RAY_AUTH_MODE=token " if asks_for_token else ""
    dashboard = f"http://{host if started.dashboard_host == EVERY_INTERFACE else '127.0.0.1'}:{started.dashboard_port}"
    submit = f"{first}syncline submit --address={dashboard} --working-dir . -- python script.py"
    return "\n".join(
        (
            f"The cluster runs; its address is {address}.",
            f"  join from others   {first}syncline start --address={address}",
            f"  run programs       {first}SYNCLINE_ADDRESS={address} python script.py",
            f"  or in them         syncline.init(address={address!r})",
            f"  submit programs    {submit if _TAKES_JOBS in output else NO_JOBS}",
            f"  look at it         {first}syncline status --address={address}",
            "  stop it            syncline stop",
            TOKEN_ASKED if asks_for_token else NO_TOKEN_ASKED,
        )
    )


@click.command(
    name="start",
    context_settings={"ignore_unknown_options": True},
    epilog="Other flags go to `ray start` as they are.",
)
@click.option("--head", is_flag=True, help="Start a cluster: this machine is its head node.")
@click.option("--address", metavar="HOST:PORT", help="Join the cluster whose head node is there.")
@click.option(
    "--node-ip-address", metavar="IP", help="The address by which other nodes reach this one."
)
@click.option(
    "--port",
    type=int,
    help=f"Port of the head node; {DEFAULT_PORT} if not given, 0 for any that is free.",
)
@click.option(
    "--dashboard-host",
    metavar="HOST",
    help="Where Ray's dashboard and the job API listen; 0.0.0.0 for every interface.",
)
@click.option(
    "--dashboard-port", type=int, help=f"Their port; {job_api.DEFAULT_PORT} if not given."
)
@click.option(
    "--num-cpus", type=int, help="CPUs that tasks may share; those of this machine if not given."
)
@click.option(
    "--num-gpus", type=int, help="GPUs that tasks may share; those of this machine if not given."
)
@click.option("--resources", metavar="JSON", help="Resources of your own: '{\"ssd\": 2}'.")
@click.option("--object-store-memory", type=int, metavar="BYTES", help="Shared memory for objects.")
@click.option(
    "--temp-dir", type=click.Path(), help="Where sessions and logs lie; the same on every node."
)
@click.option(
    "--block", is_flag=True, help="Stay until the node ends: for containers and service managers."
)
@click.option("--redis-port", type=int, hidden=True)
@click.option("--redis-address", hidden=True)
@click.option("--redis-password", hidden=True)
@click.argument("others", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def start_command(context: click.Context, /, others: tuple[str, ...], **options: Any) -> None:
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
    """Start with --block, announce the cluster once it runs, and stay until it ends; the exit
    code.
    """
    process = subprocess.Popen(
        [*ray_command.command(), *planned.arguments],
        env={**ray_command.environment(), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )

    was_told = False

    def pass_on(number: int, frame: FrameType | None) -> None:
        nonlocal was_told
        was_told = True
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
                    + "\n  (it stays in the foreground; Ctrl-C stops it)"
                )
        code = process.wait()
    except KeyboardInterrupt:
        # The terminal has sent the signal to Ray's process, too: it stops the node by itself.
        process.wait()
        return 130
    finally:
        signal.signal(signal.SIGTERM, former)
    if code and not announced:
        _show_failure("".join(seen), code)
    elif was_told:
        warn("the node was stopped by SIGTERM")
    elif code > 0:
        warn(f"the node ended with code {code}; the last it said:\n{''.join(seen)}")
    return code if code >= 0 else 128 - code


def _show_failure(output: str, code: int) -> None:
    warn(f"the node did not start (exit code {code}). Ray said:\n{ray_command.tail(output)}")


@click.command(name="stop")
@click.option("--force", is_flag=True, help="Kill at once, with SIGKILL.")
@click.option(
    "--grace-period",
    type=int,
    metavar="SECONDS",
    help="How long processes may take to end before they are killed.",
)
@click.pass_context
def stop_command(context: click.Context, force: bool, grace_period: int | None) -> None:
    """Stop every process of a cluster on this machine that this user may stop, whichever cluster it
    is.

    Runs that go on elsewhere lose this node. Exit code: that of `ray stop`.
    """
    if force and grace_period is not None:
        raise click.UsageError(
            "--force waits for nothing, so it has no --grace-period: give only one of them"
        )
    arguments = [
        "stop",
        *(["--force"] if force else []),
        *([f"--grace-period={grace_period}"] if grace_period is not None else []),
    ]
    code, output = ray_command.quietly(arguments)
    if code:
        raise CommandError(
            f"the cluster's processes could not all be stopped (exit code {code}). Ray said:\n{ray_command.tail(output)}",
            exit_code=code,
        )
    others = output.count("Could not terminate")
    if others:
        warn(
            f"processes of another user's cluster ({others}) go on: only that user, or root, may stop them"
        )
    if "Did not find any active Ray processes" in output:
        click.echo(
            "No cluster of this user's ran on this machine."
            if others
            else "No cluster ran on this machine."
        )
    else:
        count = re.search(r"Stopped all (\d+)", output)
        click.echo(
            f"Stopped the cluster's {count.group(1) + ' ' if count else ''}processes on this machine."
        )
