"""Alerts about runs: a command or a webhook when a run ends with an error, stalls or finishes.

`syncline.train.AlertCallback` configures them in a program, and `SYNCLINE_ALERT_COMMAND` and
`SYNCLINE_ALERT_WEBHOOK` for all programs of an environment. The program that controls the run
starts a process for each alert (`alert_sender`) and does not wait for it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from syncline import settings
from syncline.runs.causes import cause_line
from syncline.runs.discovery import page_of

AlertEvent = Literal["errored", "stalled", "finished", "aborted"]
EVENTS: tuple[AlertEvent, ...] = ("errored", "stalled", "finished", "aborted")
DEFAULT_EVENTS: tuple[AlertEvent, ...] = ("errored", "stalled", "finished")
LIMIT_S = 20.0
"""Seconds that a command or a webhook may take."""
_SENDER = Path(__file__).with_name("alert_sender.py")

logger = logging.getLogger("syncline")


class AlertSender:
    """Sends alerts to one receiver; `syncline.train.AlertCallback` documents the arguments."""

    def __init__(
        self,
        command: str | None = None,
        webhook: str | None = None,
        events: Sequence[AlertEvent] = DEFAULT_EVENTS,
    ) -> None:
        if not command and not webhook:
            raise ValueError("AlertCallback(): pass a command or a webhook.")
        if webhook and not webhook.startswith(("https://", "http://")):
            raise ValueError(
                "AlertCallback(webhook=…): the URL must begin with https:// or http://."
            )
        unknown = [event for event in events if event not in EVENTS]
        if unknown:
            raise ValueError(
                f"AlertCallback(events=…): {unknown[0]!r} is unknown. Events: {', '.join(EVENTS)}."
            )
        self._command = command
        self._webhook = webhook
        self._events = frozenset(events)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"  # commands and URLs contain secrets

    def send(self, event: str, *, run: str, kind: str, path: str, error: str | None = None) -> None:
        """Start to send an alert, without waiting; never raises.

        Args:
            event: Event; others than the chosen ones are ignored.
            run: Name of the run.
            kind: train or tune.
            path: Directory or URI of the run.
            error: Error of the run.
        """
        if event not in self._events:
            return
        try:
            cause = cause_line(error or "")
            what = {"train": "training", "tune": "search"}.get(kind, "run")
            text = f"syncline: the {what} {run} {_VERBS[event]}" + (f": {cause}" if cause else "")
            alert = {
                "event": event,
                "run": run,
                "kind": kind,
                "path": path,
                "cause": cause,
                "page": page_of(path) or "",
                "text": text,
                "content": text,
            }
            given = {
                "alert": alert,
                "command": self._command,
                "webhook": self._webhook,
                "limit_s": LIMIT_S,
            }
            process = subprocess.Popen(
                [sys.executable, "-I", str(_SENDER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # survives Ctrl-C and the end of the program
            )
            assert process.stdin is not None
            with process.stdin as stdin:
                stdin.write(json.dumps(given).encode())
            _started[:] = [each for each in _started if each.poll() is None] + [process]
        except Exception as failure:  # an alert must not fail the run
            logger.warning("The alert %r of the run %s cannot be sent: %s", event, run, failure)


_VERBS = {
    "errored": "ended with an error",
    "stalled": "makes no progress",
    "finished": "has finished",
    "aborted": "was aborted",
}
_started: list[subprocess.Popen[bytes]] = []


def alerts_of(callbacks: Iterable[object] | None) -> list[AlertSender]:
    """Return the alerts among callbacks, and those of the environment."""
    found = [callback for callback in callbacks or () if isinstance(callback, AlertSender)]
    command = settings.environment("SYNCLINE_ALERT_COMMAND") or None
    webhook = settings.environment("SYNCLINE_ALERT_WEBHOOK") or None
    if command or webhook:
        try:
            found.append(AlertSender(command, webhook))
        except ValueError as error:
            logger.warning("SYNCLINE_ALERT_WEBHOOK is ignored: %s", error)
    return found
