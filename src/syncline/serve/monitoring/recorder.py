"""`ServeRecorder`: writes the run directory of a serve, in a thread of the controller.

Files besides those of every record (see `runs`):

    serve/seconds.jsonl         lines of `history`: the last hour or so
    serve/half_minutes.jsonl    days
    serve/quarter_hours.jsonl   months
    serve/slow.jsonl            slow requests with the time of each hop
    serve/events.jsonl          starts and ends of replicas with their cause, scaling decisions with
                                their numbers, updates, troubles; `events.jsonl` has the first ones
    serve/errors.jsonl          exceptions of user code, with request id and traceback
    serve/state.json            applications, deployments and replicas as of the last second
    serve/metrics.prom          Prometheus text of all processes, as of the last second
    logs/access.log             one line per request, written by the proxies

The controller's loop only puts objects into a queue. A full disk or a slow file system stops the
record, not serve.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping

from syncline import settings
from syncline.core.metrics_text import metrics_text
from syncline.runs.annotations import delete_run
from syncline.runs.json_values import JsonObject
from syncline.runs.record_files import LocalFiles
from syncline.runs.rotating_lines import RotatingLines
from syncline.runs.run_directory import LOGS_DIRECTORY, SERVE_DIRECTORY, RunDirectory
from syncline.runs.run_list import summarize_run
from syncline.runs.run_storage import LocalDirectory
from syncline.serve.controller.events import RecordEvent
from syncline.serve.controller.messages import ServeDetails
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.monitoring.history import RESOLUTIONS, History
from syncline.serve.monitoring.metrics import Metrics
from syncline.serve.monitoring.reports import ProxyReport, RecordTo, ReplicaReport
from syncline.serve.monitoring.request_traces import RequestTraces
from syncline.serve.wire.routes import DeploymentId
from syncline.storage.filesystem import write_local

logger = logging.getLogger("syncline.serve")

LINES_BYTES = 4_000_000
"""Size of a file of lines; there are at most two of each."""
DIRECTORY = SERVE_DIRECTORY
STATE_FILE = f"{DIRECTORY}/state.json"
METRICS_FILE = f"{DIRECTORY}/metrics.prom"
EVENTS_FILE = f"{DIRECTORY}/events.jsonl"
SLOW_FILE = f"{DIRECTORY}/slow.jsonl"
ERRORS_FILE = f"{DIRECTORY}/errors.jsonl"
PREFIX = "serve-"
_PLACE_FILE = "record"
_CLOSE_S = 5.0
BEGIN_S = 0.5
"""Seconds until the directory is created."""
_MOST_QUEUED = 10_000
MOST_EVENTS = 5_000
"""Events of this process in `events.jsonl`, which is not rotated."""
MOST_RECORDS = 50
"""Records of serve that are kept below a storage path."""
_NAME = re.compile(rf"{PREFIX}(\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d)_\d+")

_Item = RecordEvent | ReplicaReport | ProxyReport | ServeDetails


class ServeRecorder:
    """Record of one serve. `event`, `report` and `details` may be called on any thread.

    Args:
        path: Local run directory; it is created, or continued by a restarted controller.
        wall_clock: Seconds since the epoch.
    """

    def __init__(self, path: str, *, wall_clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._wall_clock = wall_clock
        self._run = RunDirectory(LocalFiles(path), clock=wall_clock)
        self._history = History(wall_clock())
        self._metrics = Metrics()
        self._traces = RequestTraces()
        self._files = {
            name: RotatingLines(os.path.join(path, name), LINES_BYTES)
            for name in (
                *(f"{DIRECTORY}/{each.name}.jsonl" for each in RESOLUTIONS),
                EVENTS_FILE,
                SLOW_FILE,
                ERRORS_FILE,
            )
        }
        self._written: dict[str, bytes] = {}
        self._queue: queue.Queue[_Item | None] = queue.Queue(_MOST_QUEUED)
        self._end = threading.Event()
        self._has_failed = False
        self._events = 0
        self._calls: dict[DeploymentId, set[DeploymentId]] = {}
        self._thread = threading.Thread(target=self._work, name="serve-record", daemon=True)

    # -- for the controller

    def start(self) -> None:
        """Begin the record after `BEGIN_S` seconds, to give priority to the first request."""
        self._thread.start()

    def event(self, event: RecordEvent) -> None:
        """Record an event."""
        self._put(event)

    def report(self, report: ReplicaReport | ProxyReport) -> None:
        """Record the statistics of a process."""
        self._put(report)

    def details(self, details: ServeDetails) -> None:
        """Record the state, once a second."""
        self._put(details)

    def record_to(self, logging_config: LoggingConfig | None = None) -> RecordTo:
        """Return the message that tells a proxy where the record is."""
        return RecordTo(
            directory=self.path,
            metrics_path=os.path.join(self.path, METRICS_FILE),
            logging_config=logging_config,
        )

    def close(self) -> None:
        """Write the rest and the outcome, and end the thread."""
        if self._thread.is_alive():
            self._end.set()
            self._put(None)
            self._thread.join(_CLOSE_S)

    def _put(self, item: _Item | None) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:  # the disk hangs
            pass

    # -- the thread

    def _work(self) -> None:
        self._end.wait(BEGIN_S)
        self._guarded(self._begin)
        next_at = time.monotonic() + 1.0
        while not self._end.is_set():
            try:
                item = self._queue.get(timeout=max(0.0, next_at - time.monotonic()))
            except queue.Empty:
                item = None
            self._guarded(self._take, item)
            if time.monotonic() >= next_at:
                next_at = max(next_at + 1.0, time.monotonic())
                self._guarded(self.write)
        while not self._queue.empty():
            self._guarded(self._take, self._queue.get())
        self._guarded(self._finish)

    def _guarded(self, action: Callable[..., None], *args: object) -> None:
        """Call `action`; log the first of several failures."""
        try:
            action(*args)
            self._has_failed = False
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("The record %s cannot be written: %s", self.path, error)

    def _take(self, item: _Item | None) -> None:
        if isinstance(item, RecordEvent):
            self._add_event(item)
        elif isinstance(item, ServeDetails):
            self._history.set_details(item)
            self._metrics.set_details(item)
            self._replace(STATE_FILE, json.dumps(state_json(item, self._calls)).encode())
        elif item is not None:
            self._add_report(item)

    def _add_event(self, event: RecordEvent) -> None:
        self._metrics.add_event(event)
        fields: JsonObject = {
            "message": event.message,
            "level": event.level,
            "app": event.app,
            "deployment": event.deployment.name if event.deployment is not None else None,
            "replica": event.replica_id,
            **{f"data_{name}" if name in _RESERVED else name: v for name, v in event.data.items()},
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        self._files[EVENTS_FILE].append(
            [{"time": round(self._wall_clock(), 3), "event": event.kind, **fields}]
        )
        self._events += 1
        if self._events <= MOST_EVENTS:
            self._run.event(event.kind, **fields)

    def _add_report(self, report: ReplicaReport | ProxyReport) -> None:
        self._history.add(report)
        self._metrics.add(report)
        self._traces.add(report, time.monotonic())
        if not isinstance(report, ReplicaReport):
            return
        if report.called:
            self._calls.setdefault(report.deployment, set()).update(report.called)
        if report.failures:
            self._files[ERRORS_FILE].append(
                [
                    {
                        "time": round(self._wall_clock(), 2),
                        "app": report.deployment.app,
                        "deployment": report.deployment.name,
                        "replica": report.replica_id,
                        "request_id": failure.request_id,
                        "method": failure.method,
                        "error": failure.error,
                        "traceback": failure.traceback,
                    }
                    for failure in report.failures
                ]
            )

    def _begin(self) -> None:
        """Create the directory."""
        for name in (DIRECTORY, LOGS_DIRECTORY):
            os.makedirs(os.path.join(self.path, name), exist_ok=True)
        remove_old_records(os.path.dirname(self.path))
        self._run.write_run(os.path.basename(self.path), {}, kind="serve", detailed=False)
        self._run.event("started")

    def write(self) -> None:
        """Write the lines of the last second."""
        now = self._wall_clock()
        for name, records in self._history.lines(now).items():
            self._files[f"{DIRECTORY}/{name}.jsonl"].append(records)
        self._files[SLOW_FILE].append(self._traces.take(time.monotonic(), now))
        self._replace(METRICS_FILE, metrics_text(self._metrics.families()).encode())

    def _finish(self) -> None:
        self.write()
        for name, records in self._history.rest(self._wall_clock()).items():
            self._files[f"{DIRECTORY}/{name}.jsonl"].append(records)
        for file in self._files.values():
            file.close()
        self._run.event("finished")
        self._run.write_outcome("finished")
        self._run.close()

    def _replace(self, name: str, data: bytes) -> None:
        if self._written.get(name) != data:
            write_local(os.path.join(self.path, name), data, durable=False)
            self._written[name] = data


_RESERVED = frozenset({"message", "level", "app", "deployment", "replica", "time", "event"})


def state_json(
    details: ServeDetails, calls: Mapping[DeploymentId, Collection[DeploymentId]]
) -> JsonObject:
    """Return the content of `state.json`; `calls` has the deployments that each one called."""
    by_app: dict[str, list[JsonObject]] = {}
    for each in details.deployments:
        status = details.status.applications[each.id.app].deployments.get(each.id.name)
        by_app.setdefault(each.id.app, []).append(
            {
                "name": each.id.name,
                "status": status.status.value if status is not None else "",
                "message": status.message if status is not None else "",
                "wanted": each.target_replicas,
                "queued": each.queued,
                "last_decision": each.last_decision,
                "calls": sorted(str(id) for id in calls.get(each.id, ())),
                "replicas": [
                    {
                        "id": replica.replica_id,
                        "state": replica.state,
                        "pid": replica.pid,
                        "node": replica.node_id,
                        "started": round(replica.started_s),
                        "constructor_s": replica.constructor_s,
                        "ongoing": replica.ongoing,
                        "rank": replica.rank,
                        "message": replica.message,
                    }
                    for replica in each.replicas
                ],
            }
        )
    routes = {
        each.name: {"route": each.route_prefix, "ingress": each.ingress.name}
        for each in details.applications
    }
    return {
        "applications": [
            {
                "name": name,
                "status": status.status.value,
                "message": status.message,
                "deployed": status.last_deployed_time_s,
                **routes.get(name, {}),
                "deployments": by_app.get(name, []),
            }
            for name, status in details.status.applications.items()
        ],
        "proxies": {
            node: {
                "status": status.value,
                "address": list(details.http_addresses.get(node, ())) or None,
            }
            for node, status in details.status.proxies.items()
        },
    }


def record_path(session: str) -> str:
    """Return the run directory for the serve of a session, new or as a controller before chose it.

    Args:
        session: Directory of serve's files in the session.
    """
    place = os.path.join(session, _PLACE_FILE)
    try:
        with open(place, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        pass
    storage = settings.storage_path()
    root = session if "://" in storage else settings.local_path(storage)
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    path = os.path.join(root, f"{PREFIX}{stamp}_{os.getpid()}")
    with open(place, "w", encoding="utf-8") as file:
        file.write(path)
    return path


def remove_old_records(storage: str, kept: int = MOST_RECORDS) -> list[str]:
    """Remove records of serve beyond the newest ones; return their names.

    Records that run, and those with a tag or a note, stay.
    """
    place = LocalDirectory(storage)
    stamped = sorted(
        (found[1], name) for name in place.directory_names() if (found := _NAME.fullmatch(name))
    )
    removed = []
    for _, name in stamped[: max(0, len(stamped) - kept)]:
        run = place.subdirectory(name)
        summary = summarize_run(run)
        if summary.state in ("finished", "killed") and not (summary.tags or summary.note):
            try:
                delete_run(run)
            except (OSError, ValueError) as error:
                logger.debug("The old record %s cannot be removed: %s", name, error)
                continue
            removed.append(name)
    return removed
