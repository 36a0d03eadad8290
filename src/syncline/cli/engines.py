"""Connecting a command to the engine that it looks at, quietly, and letting go of it again."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import click

import syncline
from syncline import settings
from syncline.cli.output import CommandError

address_option = click.option("--address", metavar="ADDRESS", help="The cluster: HOST:PORT, ray://HOST:PORT or auto; or SYNCLINE_ADDRESS.")


def chosen_address(address: str | None) -> str | None:
    """The address of the command line, or else of the environment."""
    return address or settings.address()


@contextmanager
def cluster(address: str) -> Iterator[None]:
    """syncline on the cluster at `address`, until the block ends. CommandError where there is none."""
    with _engine(address, f"there is no cluster to be reached at {address!r}"):
        yield


@contextmanager
def this_machine() -> Iterator[None]:
    """syncline on this machine, until the block ends."""
    with _engine("local", "syncline did not start on this machine"):
        yield


def can_reach_clusters() -> bool:
    """Whether Ray is installed, without which there is nothing to connect with."""
    return importlib.util.find_spec("ray") is not None


@contextmanager
def _engine(address: str, failure: str) -> Iterator[None]:
    try:
        syncline.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, TimeoutError, ModuleNotFoundError, RuntimeError, ValueError, OSError) as error:
        raise CommandError(f"{failure}: {error}") from error
    try:
        yield
    finally:
        syncline.shutdown()
