"""`run` and `start`: a program that holds serve until Ctrl-C, SIGTERM or `syncline serve shutdown`.

On a cluster, applications outlive the program, so both may return at once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from syncline.cli import engines
from syncline.cli.output import CommandError, warn
from syncline.cli.serve import background, running
from syncline.cli.serve.reload import Reloader
from syncline.cli.serve.sources import Source, parsed_arguments, parsed_environment
from syncline.core.embedded import early_start
from syncline.core.lifecycle import init
from syncline.core.lifecycle import shutdown as shut_down_engine
from syncline.serve import early_processes, program_control
from syncline.serve.client import ServeClient, ensure_client
from syncline.serve.controller.messages import ApplicationTarget, StartProxies
from syncline.serve.exceptions import RayServeException
from syncline.serve.program_client import serving_programs

host_option = click.option(
    "--host",
    "--http-host",
    help="Address to listen on; 0.0.0.0 for all networks.  [default: 127.0.0.1]",
)
port_option = click.option(
    "--port",
    "--http-port",
    type=click.IntRange(0, 65_535),
    help="Port to listen on, 0 for any.  [default: 8000]",
)
ready_option = click.option("--ready-fd", type=int, hidden=True)


@click.command(name="run")
@click.argument("target", metavar="TARGET")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--name", help="Name of the application.  [default: default]")
@click.option("--route-prefix", help='Path of its HTTP requests; "none": no HTTP.  [default: /]')
@host_option
@port_option
@click.option(
    "-d",
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    help="Directory from which modules are imported.  [default: .]",
)
@click.option(
    "--working-dir",
    type=click.Path(exists=True, file_okay=False),
    help="The same; it is also the current directory of replicas, and sent to a cluster.",
)
@click.option("--runtime-env", metavar="FILE", help="Environment of replicas, YAML or JSON.")
@click.option("--runtime-env-json", metavar="JSON", help="Environment of replicas.")
@click.option("-r", "--reload", is_flag=True, help="Deploy again when a file changes.")
@click.option(
    "--blocking/--non-blocking",
    default=True,
    help="Stay in the foreground, or serve in the background.  [default: blocking]",
)
@engines.address_option
@ready_option
def run_command(
    target: str,
    arguments: Sequence[str],
    name: str | None,
    route_prefix: str | None,
    host: str | None,
    port: int | None,
    app_dir: str,
    working_dir: str | None,
    runtime_env: str | None,
    runtime_env_json: str | None,
    reload: bool,
    blocking: bool,
    address: str | None,
    ready_fd: int | None,
) -> None:
    """Run TARGET, "module:app" or a configuration file, until Ctrl-C.

    "app" is an application, or a function that returns one and gets all KEY=VALUE arguments. With
    --reload, the last version that starts keeps running.
    """
    source = Source(
        target=target,
        args=parsed_arguments(arguments),
        directory=Path(working_dir or app_dir).resolve(),
        name=name,
        route_prefix=route_prefix,
        runtime_env=parsed_environment(runtime_env_json, runtime_env, working_dir),
        http=_http_options(host, port),
    )
    _check_file_options(source)
    chosen = engines.chosen_address(address)
    if not blocking and chosen is None:
        background.start(_own_arguments())
        return
    _serve(source, chosen, blocking=blocking, reload=reload, ready_fd=ready_fd)


def _http_options(host: str | None, port: int | None) -> dict[str, Any]:
    return {name: value for name, value in (("host", host), ("port", port)) if value is not None}


def _check_file_options(source: Source) -> None:
    if not source.is_file:
        return
    for option, value in (
        ("KEY=VALUE arguments have", source.args),
        ("--name has", source.name),
        ("--route-prefix has", source.route_prefix),
        ("the runtime environment has", source.runtime_env),
    ):
        if value:
            raise click.UsageError(f"{option} no effect with a file: write it in {source.target}")


@click.command(name="start")
@host_option
@port_option
@click.option(
    "--proxy-location",
    type=click.Choice(["EveryNode", "HeadOnly", "Disabled"]),
    default="EveryNode",
    show_default=True,
    help="Nodes of a cluster that run a proxy.",
)
@click.option(
    "--blocking/--non-blocking",
    default=False,
    help="Stay in the foreground, or serve in the background.  [default: non-blocking]",
)
@engines.address_option
@ready_option
def start_command(
    host: str | None,
    port: int | None,
    proxy_location: str,
    blocking: bool,
    address: str | None,
    ready_fd: int | None,
) -> None:
    """Start serve without applications; `syncline serve deploy` adds them.

    On this machine, a process in the background holds it until `syncline serve shutdown`.
    """
    source = Source(target=None, http=_http_options(host, port), proxy_location=proxy_location)
    chosen = engines.chosen_address(address)
    if not blocking and chosen is None:
        background.start([*_own_arguments(), "--blocking"])
        return
    _serve(source, chosen, blocking=blocking, reload=False, ready_fd=ready_fd)


def _own_arguments() -> list[str]:
    """Return the arguments of this command line, from "serve" on."""
    arguments = sys.argv[1:]
    return [each for each in arguments if each != "--non-blocking"]


def _serve(
    source: Source, address: str | None, *, blocking: bool, reload: bool, ready_fd: int | None
) -> None:
    """Deploy the applications and, with `blocking`, serve until a signal.

    On a signal, also one during the deployment, serve ends if it is of this program.
    """
    others = [] if address is not None else serving_programs()
    if reload:
        # A byte code file counts as current if size and second of the change are equal.
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if address is None:
        early_start.allow()
        early_processes.start()
    reloader = Reloader(source) if reload else None
    if reloader is not None:
        reloader.start()
    began = time.monotonic()
    targets, proxies = source.load()  # before anything starts, so that mistakes show at once
    sys.path.insert(0, str(source.directory))  # for replicas
    with _signals():
        with _explained_problems(others):
            init(address)
            client = ensure_client()
        try:
            with _explained_problems(others):
                _deploy(client, targets, proxies)
            _announce(client, targets, time.monotonic() - began)
            if ready_fd is not None:
                os.write(ready_fd, b"ready\n")
                os.close(ready_fd)
            if blocking:
                if ready_fd is None:
                    click.echo(f"{'Reloads on changes. ' if reload else ''}Ctrl-C ends it.")
                _hold(client, reloader)
        except KeyboardInterrupt:
            if not blocking:
                raise
            if reloader is not None:
                reloader.stop()
            if address is None:
                _end(client)
        finally:
            if blocking:
                shut_down_engine()


@contextmanager
def _explained_problems(others: Sequence[Any]) -> Iterator[None]:
    """Turn errors of the start into errors of the command."""
    try:
        yield
    except (OSError, RuntimeError, RayServeException) as error:
        shut_down_engine()
        raise CommandError(_start_problem(error, others)) from error


def _start_problem(error: Exception, others: Sequence[Any]) -> str:
    if isinstance(error, OSError) and others:
        pids = ", ".join(str(each.pid) for each in others)
        return (
            f"{error} (Process {pids} on this machine runs serve already: `syncline serve deploy` "
            "adds applications to it, `syncline serve shutdown` ends it.)"
        )
    return str(error)


def _deploy(client: ServeClient, targets: list[ApplicationTarget], proxies: StartProxies) -> None:
    """Deploy the applications and wait until they run."""
    versions, warning = running.deploy(client, targets, proxies, replace_all=False)
    if warning:
        warn(warning)
    running.wait_until_running(client, versions)


def _announce(client: ServeClient, targets: list[ApplicationTarget], seconds: float) -> None:
    for target in targets:
        where = running.url_of(client, target.route_prefix)
        click.echo(f"{target.name} runs{'' if where == '-' else f' at {where}'} ({seconds:.2f} s)")
    if not targets:
        click.echo(f"serve runs at {running.url_of(client, '/')} without applications")
    sys.stdout.flush()


# -- until the end


class _Stopped(KeyboardInterrupt):
    """SIGTERM, treated as Ctrl-C."""


@contextmanager
def _signals() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> NoReturn:
        raise _Stopped

    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _hold(client: ServeClient, reloader: Reloader | None) -> None:
    """Serve until `syncline serve shutdown`."""
    if reloader is not None:
        reloader.deployed(client)
    sys.stdout.flush()
    program_control.wait_for_end()
    click.echo("serve was shut down")


def _end(client: ServeClient) -> None:
    """End serve once requests in flight are answered; a second signal ends them."""
    click.echo("\nEnding when the requests in flight are answered; Ctrl-C again ends at once")
    try:
        client.shutdown()
    except KeyboardInterrupt:
        pass
