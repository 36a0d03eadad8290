"""Connection of a command to an engine, without output, until a block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from syncline import settings
from syncline.cli.output import CommandError, warn
from syncline.core.host import ray_node_runs_here
from syncline.core.lifecycle import init_quietly, shutdown

address_option = click.option(
    "--address",
    metavar="ADDRESS",
    help="Cluster: HOST:PORT, ray://HOST:PORT or auto; default SYNCLINE_ADDRESS.",
)


def chosen_address(address: str | None) -> str | None:
    """Return the address of the command line, or of the environment."""
    return address or settings.address()


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to the cluster at `address`, or start an engine on this machine if it is None, until
    the block ends. Raises CommandError if that fails.
    """
    try:
        init_quietly(address or "")
    except ConnectionError as error:
        failure = (
            "syncline did not start on this machine"
            if address is None
            else f"no cluster can be reached at {address!r}"
        )
        raise CommandError(f"{failure}: {error}") from error
    try:
        yield
    finally:
        shutdown()


@contextmanager
def cluster_if_any(address: str | None) -> Iterator[bool]:
    """Connect to the cluster at `address`, or to the local one; yield False if there is none.

    A local cluster that refuses, such as another user's, prints a warning and counts as none.

    Raises:
        CommandError: No cluster answers at the given address.
    """
    if address is None and not ray_node_runs_here():
        yield False
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(connected(address or "auto"))
        except CommandError as error:
            if address is not None:
                raise
            warn(
                "a cluster runs on this machine but is omitted because it cannot be joined: "
                f"{error.format_message()}"
            )
            reached = False
        else:
            reached = True
        yield reached
