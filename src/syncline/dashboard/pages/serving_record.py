"""`ServingRecord`: the record of a serve as the panels of its pages read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import RunView, url_of
from syncline.dashboard.serving_figures import (
    FRACTIONS,
    RANGES,
    RECENT_S,
    ApplicationLine,
    DeploymentLine,
    L,
    LineCache,
    Lines,
    Range,
    application_lines,
    deployment_lines,
    quantile_ms,
    rate,
)
from syncline.dashboard.serving_state import ServingState, serving_state
from syncline.runs.json_values import Record
from syncline.serve.monitoring.histogram import Times

STATE_FILE = "serve/state.json"
MAX_LINES = 20_000
"""Maximum lines of a file that are kept."""


class ServingRecord:
    """The record of a serve as the panels read it."""

    def __init__(self, view: RunView) -> None:
        self.view = view
        self._cache = LineCache()
        self.now = 0.0
        """Time up to which the record reaches."""
        self.state = ServingState()
        self.update()

    def update(self) -> None:
        """Take the present state."""
        run = self.view.run
        self.state = serving_state(run.replaced_file(STATE_FILE))
        lines = self.lines("seconds")
        latest = lines[-1].get("time") if lines else None
        self.now = time.time()
        if not self.lives and isinstance(latest, (int, float)):
            self.now = float(latest)

    @property
    def lives(self) -> bool:
        """True while the serve runs; the last state of a killed one says that it runs."""
        return self.view.run.state == "running"

    def status(self, status: str) -> str:
        """Return the status of an application or deployment as words."""
        return status_text(status) if self.lives else "stopped"

    def lines(self, name: str) -> Sequence[Record]:
        """Return the lines of a file below `serve/`."""
        return self.view.run.recent_lines(f"serve/{name}.jsonl", MAX_LINES)

    def deployment(
        self, app: str, name: str, file: str = "seconds", seconds: float = RECENT_S
    ) -> Lines[DeploymentLine]:
        """Return the figures of a deployment over a range."""
        lines = self.lines(file)
        return deployment_lines(lines, app, name, now=self.now, seconds=seconds, cache=self._cache)

    def application(
        self, name: str, file: str = "seconds", seconds: float = RECENT_S
    ) -> Lines[ApplicationLine]:
        """Return the figures of an application over a range."""
        return application_lines(
            self.lines(file), name, now=self.now, seconds=seconds, cache=self._cache
        )

    def url(self, app: str = "", deployment: str = "") -> str:
        """Return the address of a view."""
        chosen = {"app": app, "deployment": deployment}
        query = urlencode({name: value for name, value in chosen.items() if value})
        address = url_of(self.view.storage, self.view.directory)
        return f"{address}?{query}" if query else address


class RangeChoice:
    """Choice of the range of time of the charts."""

    def __init__(self, handler: Callable[[], object]) -> None:
        first = next(iter(RANGES))
        self._field = widgets.choice(
            "Range of time", {name: f"last {name}" for name in RANGES}, first, handler
        )

    @property
    def value(self) -> Range:
        """The chosen range."""
        return RANGES.get(str(self._field.value)) or next(iter(RANGES.values()))


def status_text(status: str) -> str:
    """Return a status such as DEPLOY_FAILED as words."""
    return status.lower().replace("_", " ")


def percentile_cells(p50: float | None, p99: float | None) -> dict[str, object]:
    """Return the cells of a table row for two percentiles in milliseconds."""
    return {"p50": p50, "p50:text": milliseconds(p50), "p99": p99, "p99:text": milliseconds(p99)}


def milliseconds(value: float | None) -> str:
    """Return a number of milliseconds with three digits; "-" for None."""
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


# -- charts


def chart(title: str, unit: str = "") -> widgets.LineChart:
    """Create a chart over time."""
    return widgets.LineChart(
        title=title, y_label=unit, over_time=True, from_zero=True, height="14rem", fewest_named=1
    )


def curve(
    lines: Lines[L], name: str, value: Callable[[L], float | None], *, dashed: bool = False
) -> widgets.Line:
    """Return the curve of a value."""
    times, values = lines.curve(value)
    return widgets.Line(name=name, x=times, y=values, dashed=dashed)


def rate_curves(lines: Lines[L]) -> list[widgets.Line]:
    """Return requests per second, and errors if there are any."""
    found = [curve(lines, "all", rate)]
    if lines.whole.errors:
        times, values = lines.curve(lambda line: line.errors / max(line.span_s, 1e-3))
        found.append(widgets.Line(name="errors", x=times, y=values, color=4))
    return found


def latency_curves(lines: Lines[L], times_of: Callable[[L], Times]) -> list[widgets.Line]:
    """Return the percentiles in milliseconds."""

    def percentile(fraction: float) -> Callable[[L], float | None]:
        return lambda line: quantile_ms(times_of(line), fraction)

    return [curve(lines, f"p{100 * each:.0f}", percentile(each)) for each in FRACTIONS]
