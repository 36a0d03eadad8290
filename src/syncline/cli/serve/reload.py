"""`Reloader`: deploys again when a file of the application changes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import click

from syncline.cli.output import CommandError, warn
from syncline.cli.serve import running
from syncline.cli.serve.sources import FILE_ENDINGS, Source
from syncline.optional import load
from syncline.serve.client import ServeClient
from syncline.serve.exceptions import RayServeException

ENDINGS = (".py", *FILE_ENDINGS)
"""Files whose change counts; models and data do not."""
QUIET_MS = 50
"""Milliseconds without a change after which files count as saved."""
STEP_MS = 20
"""Milliseconds between checks for changes."""
IDLE_MS = 100
"""Milliseconds after which the library reports that nothing changed, so that it watches."""


class Reloader:
    """Watches the directory of modules, and the configuration file, in a thread.

    It watches before the files are read, so that no change is missed.
    """

    def __init__(self, source: Source) -> None:
        """Raise CommandError if the library that watches files is missing."""
        self._source = source
        self._client: ServeClient | None = None
        self._is_watching = threading.Event()
        self._is_deployed = threading.Event()
        self._stop = threading.Event()
        try:
            self._library = load("watchfiles", purpose="--reload", install="syncline[serve]")
        except ImportError as error:
            raise CommandError(str(error)) from error

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._run, name="serve-reload", daemon=True).start()
        self._is_watching.wait()

    def deployed(self, client: ServeClient) -> None:
        """Deploy changes from now on, after the first version."""
        self._client = client
        self._is_deployed.set()

    def stop(self) -> None:
        """Stop soon."""
        self._stop.set()

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            self._is_watching.set()  # after an error, which the thread prints, nothing is watched

    def _watch(self) -> None:
        paths = {self._source.directory}
        if self._source.is_file:
            paths.add(Path(str(self._source.target)).resolve().parent)
        ignoring = self._library.DefaultFilter()
        for changes in self._library.watch(
            *paths,
            watch_filter=lambda change, path: path.endswith(ENDINGS) and ignoring(change, path),
            stop_event=self._stop,
            debounce=QUIET_MS,
            step=STEP_MS,
            rust_timeout=IDLE_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            self._is_watching.set()
            if changes:
                self._is_deployed.wait()
                self.reload(sorted({path for _, path in changes}))

    def reload(self, changed: list[str]) -> None:
        """Deploy the current files; print errors, after which the former version keeps running."""
        assert self._client is not None, "`deployed` comes first"
        began = time.monotonic()
        names = ", ".join(Path(path).name for path in changed)
        try:
            targets, _ = self._source.load()
            versions, _ = running.deploy(self._client, targets, None, replace_all=False)
            running.wait_until_running(self._client, versions)
        except (CommandError, OSError, RuntimeError, RayServeException) as error:
            text = error.format_message() if isinstance(error, CommandError) else str(error)
            warn(f"{names} changed, but the former version keeps running: {text}")
            return
        click.echo(f"{names} changed: deployed in {time.monotonic() - began:.2f} s")
