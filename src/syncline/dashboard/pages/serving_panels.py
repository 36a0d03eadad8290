"""Panels of the serving page: slow requests, errors and events."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.dashboard import widgets
from syncline.dashboard.pages.serving_record import ServingRecord
from syncline.dashboard.serving_figures import PARTS
from syncline.dashboard.serving_state import text
from syncline.dashboard.serving_traces import SlowRequest, errors, slow_requests
from syncline.dashboard.widgets import Column, Span
from syncline.runs.json_values import Record, finite

SHOWN = 100
"""Rows of slow requests, errors and events."""
DRAWN = 3
"""Slow requests with a timeline."""
DRAWN_CALLS = 8
"""Maximum calls in a timeline."""


class SlowPanel:
    """The slowest requests with the time of each hop."""

    def __init__(self, record: ServingRecord, app: str, deployment: str) -> None:
        self._record = record
        self._app = app
        self._deployment = deployment
        with widgets.section(
            "Slow requests",
            "The slowest requests of every ten seconds, and those of their calls that were among "
            "the slowest of their replica; times in milliseconds.",
            anchor="slow",
        ) as self._section:
            self._spans = widgets.Timeline(PARTS, label="Timelines of the slowest requests")
            self._table = widgets.DataTable(
                _SLOW, row_key="key", label="Slow requests", rows_per_page=10
            )

    def update(self) -> None:
        """Show the current record."""
        found = slow_requests(self._record.lines("slow")[-2_000:], self._app, self._deployment)
        self._section.visible = bool(found)
        slowest = sorted(found[:SHOWN], key=lambda each: -each.total)[:DRAWN]
        self._spans.set([span for each in slowest for span in _spans(each)])
        self._table.set(
            [
                {
                    "key": f"{number} {each.request_id}",
                    "time": widgets.clock(each.time),
                    "id": each.request_id,
                    "what": each.what,
                    "status": each.status,
                    "total": each.total,
                    "total:text": f"{each.total:.1f}",
                    "queue": each.queue,
                    "queue:text": f"{each.queue:.1f}",
                    **_part_cells(each.parts),
                    "replica": each.replica,
                    "calls": "; ".join(map(str, each.calls)),
                }
                for number, each in enumerate(found[:SHOWN])
            ]
        )


_SLOW = (
    Column(name="time", label="Time"),
    Column(name="id", label="Request", kind="mono", minor=True),
    Column(name="what", label="Route"),
    Column(name="status", label="Status", number=True),
    Column(name="total", label="Total", number=True),
    Column(name="queue", label="Queue", number=True),
    Column(name="batch", label="Batch wait", number=True),
    Column(name="handler", label="Handler", number=True),
    Column(name="transfer", label="Transfer", number=True),
    Column(name="replica", label="Replica", kind="mono", minor=True),
    Column(name="calls", label="Calls", yielding=True, sortable=False, minor=True),
)


def _spans(request: SlowRequest) -> list[Span]:
    """Return the spans of a request and of the calls whose beginning is known."""
    whole = request.parts or (request.queue, 0.0, max(0.0, request.total - request.queue), 0.0)
    calls = [each for each in request.calls if each.after is not None]
    return [
        Span(
            name=f"{request.what} · {request.request_id[-8:]}",
            start=0.0,
            parts=whole,
            text=f"{request.total:.1f} ms",
        ),
        *(
            Span(
                name=each.name,
                start=each.after or 0.0,
                parts=(0.0, each.batch_wait, each.total - each.batch_wait, 0.0),
                text=f"{each.total:.1f} ms",
                is_child=True,
            )
            for each in calls[:DRAWN_CALLS]
        ),
    ]


def _part_cells(parts: tuple[float, ...] | None) -> dict[str, object]:
    if parts is None:
        return {"batch": "", "handler": "", "transfer": ""}
    cells: dict[str, object] = {}
    for name, value in zip(("batch", "handler", "transfer"), parts[1:], strict=True):
        cells[name], cells[f"{name}:text"] = value, f"{value:.1f}"
    return cells


class ErrorsPanel:
    """Recent exceptions of user code."""

    def __init__(self, record: ServingRecord, app: str, deployment: str) -> None:
        self._record = record
        self._app = app
        self._deployment = deployment
        with widgets.section(
            "Errors", "Exceptions of user code; at most five per replica every ten seconds."
        ) as self._section:
            self._table = widgets.DataTable(
                [
                    Column(name="time", label="Time"),
                    Column(name="id", label="Request", kind="mono", minor=True),
                    Column(name="deployment", label="Deployment"),
                    Column(name="method", label="Method", minor=True),
                    Column(name="error", label="Error", yielding=True, sortable=False),
                ],
                row_key="key",
                label="Errors",
                rows_per_page=10,
            )
            with widgets.Expandable("Traceback of the latest error"):
                self._traceback = widgets.Mono(label="Traceback")

    def update(self) -> None:
        """Show the current record."""
        found = errors(self._record.lines("errors"), self._app, self._deployment)[:SHOWN]
        self._section.visible = bool(found)
        self._table.set(
            [
                {
                    "key": f"{number} {text(each.get('request_id'))}",
                    "time": widgets.clock(finite(each.get("time"))),
                    "id": text(each.get("request_id")),
                    "deployment": text(each.get("deployment")),
                    "method": text(each.get("method")),
                    "error": widgets.printable(text(each.get("error")), 300),
                }
                for number, each in enumerate(found[:SHOWN])
            ]
        )
        self._traceback.set(text(found[0].get("traceback")) if found else "")


class EventsPanel:
    """Events of the controller."""

    def __init__(self, record: ServingRecord, app: str, deployment: str) -> None:
        self._record = record
        self._app = app
        self._deployment = deployment
        with widgets.section("Events"):
            self._table = widgets.DataTable(
                [
                    Column(name="time", label="Time"),
                    Column(name="event", label="Event"),
                    Column(name="what", label="Details", yielding=True, sortable=False),
                ],
                row_key="key",
                label="Events",
                rows_per_page=15,
            )

    def update(self) -> None:
        """Show the current record."""
        found = _of(self._record.lines("events"), self._app, self._deployment)
        self._table.set(
            [
                {
                    "key": number,
                    "time": widgets.clock(finite(each.get("time"))),
                    "event": text(each.get("event")).replace("_", " "),
                    "what": widgets.printable(text(each.get("message")), 500),
                }
                for number, each in enumerate(found[:SHOWN])
            ]
        )


def _of(lines: Sequence[Record], app: str, deployment: str) -> list[Record]:
    """Return the lines of an application or deployment, the latest first."""
    return [
        line
        for line in reversed(lines)
        if (not app or line.get("app") == app)
        and (not deployment or line.get("deployment") == deployment)
    ][:SHOWN]
