"""`dashboard`: show runs in a browser, active and finished, without an engine."""

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
    help="Address to listen on; any address but loopback requires the token for everything.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=None,
    help=f"Port to listen on, 0 for any.  [default: {DEFAULT_PORT}, or the next free one]",
)
@engines.address_option
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Another host name to accept, such as a proxy's; repeatable.",
)
@click.option(
    "--open/--no-open",
    "open_browser",
    default=False,
    help="Open the browser of this machine.  [default: no-open]",
)
def dashboard_command(
    storage_paths: Sequence[str],
    host: str,
    port: int | None,
    address: str | None,
    allowed_hosts: Sequence[str],
    open_browser: bool,
) -> None:
    """Show the runs below each STORAGE_PATH in a browser.

    STORAGE_PATH is a directory, or a URI such as s3://bucket/runs; by default
    SYNCLINE_STORAGE_PATH, or ~/syncline_results. The printed address contains a token that grants
    full access; without it, pages can only be read, and only from this machine. Ctrl-C stops the
    dashboard.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the dashboard needs {' and '.join(missing)}, which is not installed: run "
            "`pip install 'syncline[dashboard]'`"
        )
    server.install_logging()
    options = ServerOptions(
        storages=_storage_directories(storage_paths),
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
    # Threads may still wait for a bucket or a worker; do not join them.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _storage_directories(paths: Sequence[str]) -> list[StorageDirectory]:
    try:
        return [open_directory(path) for path in dict.fromkeys(paths)] or [open_directory(None)]
    except ValueError as error:
        raise CommandError(str(error)) from error


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()
