"""Harness of the browser tests: running programs, the dashboard, and pages that record errors."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from syncline.runs import LocalFiles, RunDirectory
from syncline.testing.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Dialog, Page

PROGRAMS = Path(__file__).with_name("programs.py")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PREPARED = 60
"""Number of finished runs; more than a page of the list."""


def browser_path() -> str | None:
    """Path of the browser."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Site:
    """Files of the tests, in a directory with a short name, because socket paths are short."""

    root: Path

    @property
    def runs(self) -> Path:
        """Storage path 0: runs of the programs."""
        return self.root / "runs"

    @property
    def prepared(self) -> Path:
        """Storage path 1: finished runs."""
        return self.root / "prepared"

    @property
    def hostile(self) -> Path:
        """Storage path 2: hostile runs."""
        return self.root / "hostile"

    @property
    def environment(self) -> dict[str, str]:
        """Environment of programs and dashboard, with a common temporary directory."""
        return {
            **os.environ,
            "SYNCLINE_TMPDIR": str(self.root),
            "SYNCLINE_STORAGE_PATH": str(self.runs),
        }


@dataclass
class Program:
    """A program and its run directory."""

    process: subprocess.Popen[bytes]
    run: Path

    @property
    def address(self) -> str:
        """Path of the run's page."""
        return address(0, self.run.name)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill the program with SIGKILL, like the kernel when memory is exhausted."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Programs:
    """Programs by kind, started on first use."""

    place: Site
    started: dict[str, Program] = field(default_factory=dict)
    count: int = 0

    def start(self, kind: str) -> None:
        """Start a program without waiting."""
        self.count += 1
        name = f"{kind}-{self.count}"
        with (self.place.root / f"{name}.out").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAMS), kind, str(self.place.runs), name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.place.environment,
            )
        self.started[kind] = Program(process, self.place.runs / name)

    def alive(self, kind: str) -> Program:
        """Return a running program with a record; start a new one if the last was killed."""
        if kind not in self.started or not self.started[kind].is_alive:
            self.start(kind)
        program = self.started[kind]
        program.run = eventually(lambda: self._recorded(program), what=f"{kind} has a record")
        return program

    def last(self, kind: str) -> Program:
        """Return the last program, running or not."""
        program = self.started.get(kind)
        return (
            program
            if program is not None and (program.run / "run.json").exists()
            else self.alive(kind)
        )

    def _recorded(self, program: Program) -> Path | None:
        output = self.place.root / f"{program.run.name}.out"
        assert program.is_alive, output.read_text() if output.exists() else "it has ended"
        # The run name of an execution contains the dataset's name and a suffix, that of a serve its
        # time.
        kind = program.run.name.rpartition("-")[0]
        pattern = "serve-*" if kind == "serving" else f"data_{program.run.name}*"
        found = [program.run, *sorted(program.run.parent.glob(pattern), reverse=True)]
        return next((run for run in found if (run / "run.json").exists()), None)

    def kill_all(self) -> None:
        for program in self.started.values():
            if program.is_alive:
                program.kill()


@dataclass(frozen=True)
class Dashboard:
    """A running `syncline dashboard` command."""

    process: subprocess.Popen[str]
    url: str
    token: str


def start_dashboard(place: Site) -> Dashboard:
    storages = [str(path) for path in (place.runs, place.prepared, place.hostile)]
    process = subprocess.Popen(
        [sys.executable, "-m", "syncline", "dashboard", *storages, "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=place.environment,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if found := re.search(r"^Dashboard: (http://\S+)/\?token=(\S+)$", line):
            return Dashboard(process, found[1], found[2])
    raise AssertionError(f"it ended with {process.wait()} and said {said!r}")


def address(storage: int, directory: str) -> str:
    """Return the path of a run's page."""
    return f"/run/{storage}/{quote(directory, safe='')}"


def prepare_runs(storage: Path) -> None:
    """Write finished runs, every third with an error."""
    for number in range(PREPARED):
        with RunDirectory(
            LocalFiles(storage / f"made-{number:03}"),
            clock=lambda moment=1_700_000_000.0 + number: moment,  # type: ignore[misc]
        ) as run:
            run.write_run(f"made-{number:03}", {"number": number}, detailed=False)
            run.report(0, 0, {"loss": 1.0 / (number + 1)})
            run.write_outcome(
                "errored" if number % 3 == 0 else "finished",
                "it failed" if number % 3 == 0 else None,
            )


class Watched:
    """Browser page that collects errors."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.page: Page = context.new_page()
        self._url = url
        self.wrong: list[str] = []
        """Errors of the page."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error in the page: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self._request(request.url))

    def go(self, address: str) -> Page:
        """Open a path of the dashboard and wait until the page has its websocket."""
        self.page.goto(self._url + address)
        self.page.wait_for_function("window.did_handshake === true")
        return self.page

    def _console(self, message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        if kind in ("error", "warning"):
            self.wrong.append(f"{kind} in the console: {text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str) -> None:
        if urlsplit(url).scheme not in ("data", "blob") and urlsplit(url).hostname != "127.0.0.1":
            self.wrong.append(f"request to {url}")
