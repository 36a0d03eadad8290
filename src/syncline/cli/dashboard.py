"""`dashboard`: runs in a browser, live and finished; no engine needs to be running."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence

import click

from syncline.cli import engines
from syncline.cli.output import CommandError, warn
from syncline.dashboard import server
from syncline.dashboard.server import DEFAULT_PORT, ServerOptions, serve
from syncline.runs.run_storage import StorageDirectory, open_directory

NEEDED = ("nicegui", "prometheus_client")


@click.command(name="dashboard")
@click.argument("storage_paths", metavar="[STORAGE_PATH]...", nargs=-1)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; any but loopback needs the token for everything.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=None,
    help=f"Port to listen on, 0 for any.  [default: {DEFAULT_PORT}, or the next that is free]",
)
@engines.address_option
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="A further name to answer to, such as a proxy's; repeatable.",
)
@click.option(
    "--open/--no-open",
    "open_browser",
    default=False,
    help="Open it in the browser of this machine.  [default: no-open]",
)
def dashboard_command(
    storage_paths: Sequence[str],
    host: str,
    port: int | None,
    address: str | None,
    allowed_hosts: Sequence[str],
    open_browser: bool,
) -> None:
    """Show runs in a browser: those below each STORAGE_PATH, a directory or a URI such as
    s3://bucket/runs.

    By default SYNCLINE_STORAGE_PATH, or else ~/syncline_results. Nothing needs to be running. The
    address that it prints has a token in it, which opens everything; without it, pages can only be
    read, and only from this machine. Ctrl-C ends it.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the dashboard needs {' and '.join(missing)}, not installed here: pip install 'syncline[dashboard]'"
        )
    server.install_logging()
    options = ServerOptions(
        storages=_places(storage_paths),
        host=host,
        port=port,
        address=engines.chosen_address(address),
        allowed_hosts=allowed_hosts,
        open_browser=open_browser,
    )
    try:
        serve(options, say=_say, warn=warn)
    except OSError as error:
        raise CommandError(f"the dashboard cannot listen on {host}: {error}") from error
    # A thread may be waiting for a bucket or a worker: nobody waits for it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _places(paths: Sequence[str]) -> list[StorageDirectory]:
    try:
        return [open_directory(path) for path in dict.fromkeys(paths)] or [open_directory(None)]
    except ValueError as error:
        raise CommandError(str(error)) from error


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()
