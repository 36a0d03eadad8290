"""Connecting a command to the engine that it looks at, quietly, and letting go of it again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

import syncline
from syncline import settings
from syncline.cli.output import CommandError, warn
from syncline.core.presence import cluster_runs_here

address_option = click.option(
    "--address",
    metavar="ADDRESS",
    help="The cluster: HOST:PORT, ray://HOST:PORT or auto; or SYNCLINE_ADDRESS.",
)


def chosen_address(address: str | None) -> str | None:
    """The address of the command line, or else of the environment."""
    return address or settings.address()


@contextmanager
def cluster(address: str) -> Iterator[None]:
    """syncline on the cluster at `address`, until the block ends. CommandError where there is
    none.
    """
    with _engine(address, f"there is no cluster to be reached at {address!r}"):
        yield


@contextmanager
def this_machine() -> Iterator[None]:
    """syncline on this machine, until the block ends."""
    with _engine("", "syncline did not start on this machine"):
        yield


@contextmanager
def cluster_if_any(address: str | None) -> Iterator[bool]:
    """syncline on the cluster at `address`, or without one on the cluster of this machine; whether
    there is one.

    CommandError if nothing answers at the address that was given. A cluster of this machine that
    refuses, such as another user's, is warned of and counts as none.
    """
    if address is None and not cluster_runs_here():
        yield False
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster(address or "auto"))
        except CommandError as error:
            if address is not None:
                raise
            warn(
                f"a cluster runs on this machine and is left out, as it cannot be joined; {error.format_message()}"
            )
            reached = False
        else:
            reached = True
        yield reached


@contextmanager
def _engine(address: str, failure: str) -> Iterator[None]:
    try:
        syncline.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (
        ConnectionError,
        TimeoutError,
        ModuleNotFoundError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        raise CommandError(f"{failure}: {error}") from error
    try:
        yield
    finally:
        syncline.shutdown()
