"""Where serve runs: a program of this user on this machine, or a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from syncline.cli import engines
from syncline.cli.output import CommandError
from syncline.core.control import Program, ProgramUnreachable
from syncline.core.host import ray_node_runs_here
from syncline.serve.client import ServeClient, check_feasible, find_client
from syncline.serve.controller.messages import ApplicationTarget, StartProxies
from syncline.serve.program_client import ProgramClient, serving_programs

F = TypeVar("F", bound=Callable[..., Any])


def serve_options(function: F) -> F:
    """Add --address and --pid, which choose where serve runs."""
    pid = click.option(
        "--pid", type=int, help="Process that runs serve, if several programs on this machine do."
    )
    return engines.address_option(pid(function))


@contextmanager
def running_serve(address: str | None, pid: int | None) -> Iterator[ServeClient | None]:
    """Yield a client of the serve that runs, or None.

    It is on the cluster at `address`, else in the program `pid`, else in the only program of this
    machine, else on the cluster of this machine. Raises CommandError if the address or process
    does not exist, and if there are several programs.
    """
    chosen = engines.chosen_address(address)
    if chosen is None:
        program = _program(pid)
        if program is not None:
            yield _client_of(program)
            return
        if not ray_node_runs_here():
            yield None
            return
    with engines.cluster_if_any(chosen) as reached:
        yield find_client() if reached else None


def _client_of(program: Program) -> ProgramClient:
    try:
        return ProgramClient(program)
    except (ProgramUnreachable, OSError) as error:
        raise CommandError(f"serve of process {program.pid} does not answer: {error}") from error


def _program(pid: int | None) -> Program | None:
    programs = serving_programs()
    if pid is None and len(programs) <= 1:
        return programs[0] if programs else None
    found = [program for program in programs if program.pid == pid]
    if found:
        return found[0]
    listed = "".join(f"\n  {each.pid}  {shlex.join(each.command)}" for each in programs) or " none"
    problem = (
        f"{len(programs)} programs of this user on this machine run serve: choose one with --pid"
        if pid is None
        else f"process {pid} does not run serve: pass --pid of another program"
    )
    raise CommandError(f"{problem}. Programs:{listed}")


@contextmanager
def needed_serve(address: str | None, pid: int | None) -> Iterator[ServeClient]:
    """Yield a client as `running_serve` does. Raises CommandError if serve is not running."""
    with running_serve(address, pid) as client:
        if client is None:
            raise CommandError(
                "serve is not running: `syncline serve run module:app` runs an application, "
                "`syncline serve start` starts serve in the background"
            )
        yield client


def deploy(
    client: ServeClient,
    targets: Sequence[ApplicationTarget],
    proxies: StartProxies | None,
    *,
    replace_all: bool,
) -> tuple[Mapping[str, int], str | None]:
    """Check and deploy applications; return their versions, and a warning about the proxies.

    Raises RuntimeError for resources that do not exist, and RayServeException for route prefixes
    that are taken.
    """
    check = client.check_feasible if isinstance(client, ProgramClient) else check_feasible
    for target in targets:
        check(target)
    warning = client.start_proxies(proxies) if proxies is not None else None
    return client.deploy(targets, replace_all=replace_all), warning


def wait_until_running(client: ServeClient, versions: Mapping[str, int]) -> None:
    """Wait until applications run. Raises RuntimeError with the cause if one of them does not."""
    for name, version in versions.items():
        client.wait_for(name, version)


def url_of(client: ServeClient, route_prefix: str | None) -> str:
    """Return the URL of an application, or "-" without HTTP."""
    addresses = client.details().http_addresses
    if route_prefix is None or not addresses:
        return "-"
    host, port = next(iter(addresses.values()))
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{route_prefix}"
