"""Progress of a training: snapshots, and their drawing as a panel or as lines. Pure, except for
`TrainingDisplay`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from syncline.cli.rl.stopping import ITERATIONS, RETURN, STEPS, Remaining
from syncline.core.live_region import LiveRegion, print_line
from syncline.rl.records.bottleneck import PARTS, RECENT, Bottleneck, bottleneck, summed
from syncline.rl.records.time_split import STEPS_PER_S, TIME_SPLIT
from syncline.runs.durations import duration
from syncline.train import metric_values
from syncline.train.metric_values import Metrics

MAX_WIDTH = 100
LINES_EVERY_S = 5.0
"""Seconds between two lines, where nothing is drawn."""
MAX_CURVE = 40
"""Points of the curve of returns."""
_LOSSES = {
    "policy_loss": "policy",
    "vf_loss": "value",
    "qf_loss": "Q",
    "total_loss": "total",
    "mean_kl_loss": "KL",
    "entropy": "entropy",
    "alpha_value": "alpha",
}
_BARS = "▁▂▃▄▅▆▇█"
_LABEL_WIDTH = 12
_BAR_WIDTH = 36


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a training after an iteration."""

    title: str
    """Algorithm and environment."""
    path: str = ""
    """Run directory."""
    iteration: int = 0
    running_s: float = 0.0
    returns: Mapping[str, float] = field(default_factory=dict)
    """Mean, min and max over the last episodes; without values that are not known."""
    best: float | None = None
    """Highest mean so far."""
    curve: tuple[float, ...] = ()
    """Means of the last iterations."""
    length: float | None = None
    evaluation: float | None = None
    episodes: int = 0
    steps: int = 0
    steps_per_s: float = 0.0
    losses: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By module."""
    splits: tuple[Mapping[str, object], ...] = ()
    """Times of the last iterations."""
    split: Bottleneck | None = None
    remaining: Remaining | None = None
    restarts: int = 0
    """Env runners that were started again."""
    runners: int = 0


def after(
    before: Snapshot, result: Metrics, *, remaining: Remaining | None = None, num_envs: int = 1
) -> Snapshot:
    """Return the snapshot after a further result."""
    look = metric_values.lookup
    returns = {
        name: value
        for name in ("mean", "min", "max")
        if (value := _finite(look(result, f"env_runners/episode_return_{name}"))) is not None
    }
    mean = returns.get("mean")
    known = [each for each in (before.best, mean) if each is not None]
    evaluation = _finite(look(result, f"evaluation/{RETURN}"))
    splits = (*before.splits, look(result, TIME_SPLIT) or {})[-RECENT:]
    split = bottleneck(summed(splits), num_env_runners=before.runners, num_envs=num_envs)
    return replace(
        before,
        iteration=int(result.get(ITERATIONS, 0)),
        running_s=float(result.get("time_total_s", 0.0)),
        returns=returns,
        best=max(known, default=None),
        curve=(*before.curve, *([mean] if mean is not None else []))[-MAX_CURVE:],
        length=_finite(look(result, "env_runners/episode_len_mean")),
        evaluation=evaluation if evaluation is not None else before.evaluation,
        episodes=int(_finite(look(result, "env_runners/num_episodes_lifetime")) or 0),
        steps=int(_finite(look(result, STEPS)) or 0),
        steps_per_s=_finite(look(result, STEPS_PER_S)) or 0.0,
        losses=_losses(result),
        splits=splits,
        split=split,
        remaining=remaining,
        restarts=int(_finite(look(result, "fault_tolerance/num_remote_worker_restarts")) or 0),
    )


def line(snapshot: Snapshot) -> str:
    """Return one line about an iteration."""
    parts = [f"iteration {snapshot.iteration}"]
    if "mean" in snapshot.returns:
        parts.append(f"return {_number(snapshot.returns['mean'])}")
    if snapshot.evaluation is not None:
        parts.append(f"evaluation {_number(snapshot.evaluation)}")
    if snapshot.length is not None:
        parts.append(f"length {_number(snapshot.length)}")
    parts += [f"{snapshot.steps:,} steps", f"{_number(snapshot.steps_per_s)} steps/s"]
    if snapshot.remaining is not None:
        parts.append(f"about {duration(snapshot.remaining.left_s)} left")
    return "  ".join(parts)


def panel(snapshot: Snapshot, width: int) -> RenderableType:
    """Return the drawing of a snapshot."""
    width = max(30, min(width - 3, MAX_WIDTH))
    rows: list[RenderableType] = []
    if snapshot.remaining is not None:
        rows.append(_progress(snapshot.remaining))
    if snapshot.returns:
        rows.append(_row("return", _returns_text(snapshot)))
        if len(snapshot.curve) > 1:
            rows.append(_row("", sparkline(snapshot.curve)))
    if snapshot.evaluation is not None:
        rows.append(_row("evaluation", f"return {_number(snapshot.evaluation)}"))
    if snapshot.length is not None:
        episodes = f"length {_number(snapshot.length)}, {snapshot.episodes:,} in all"
        rows.append(_row("episodes", episodes))
    rows.append(_row("steps", f"{snapshot.steps:,}, {_number(snapshot.steps_per_s)} per second"))
    for module, losses in list(snapshot.losses.items())[:4]:
        text = ", ".join(f"{name} {_number(value)}" for name, value in losses.items())
        rows.append(_row("losses" if len(snapshot.losses) == 1 else module, text))
    if snapshot.split is not None:
        rows += [
            _row("time" if name == "iteration" else name, _shares(row))
            for name, row in snapshot.split.rows.items()
        ]
    if snapshot.runners:
        restarts = f", {snapshot.restarts} restarts" if snapshot.restarts else ""
        rows.append(_row("env runners", f"{snapshot.runners}{restarts}"))
    if snapshot.path:
        rows.append(_row("run", snapshot.path))
    headline = Text(
        f"{snapshot.title}: iteration {snapshot.iteration}, {duration(snapshot.running_s)}", "green"
    )
    return Panel(
        Group(*rows),
        title=headline,
        title_align="left",
        border_style="dim",
        width=width,
        padding=(0, 1),
    )


def sparkline(values: tuple[float, ...]) -> str:
    """Return a curve of one row of characters."""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in values)


def _returns_text(snapshot: Snapshot) -> str:
    found = snapshot.returns
    parts = [f"mean {_number(found['mean'])}"] if "mean" in found else []
    if "min" in found and "max" in found:
        parts.append(f"from {_number(found['min'])} to {_number(found['max'])}")
    if snapshot.best is not None:
        parts.append(f"best mean {_number(snapshot.best)}")
    return ", ".join(parts)


def _losses(result: Metrics) -> dict[str, dict[str, float]]:
    found = {}
    for module, values in (result.get("learners") or {}).items():
        if module == "__all_modules__" or not isinstance(values, Mapping):
            continue
        losses = {
            text: value
            for name, text in _LOSSES.items()
            if (value := _finite(values.get(name))) is not None
        }
        if losses:
            found[str(module)] = losses
    return found


def _shares(row: Mapping[str, float]) -> str:
    parts = sorted(row.items(), key=lambda each: -each[1])
    return ", ".join(f"{PARTS[name]} {share:.0%}" for name, share in parts if share >= 0.02)


def _progress(remaining: Remaining) -> RenderableType:
    made = Table.grid()
    made.add_column(width=_LABEL_WIDTH)
    made.add_column(width=_BAR_WIDTH)
    made.add_column(no_wrap=True)
    bar = ProgressBar(
        total=1.0,
        completed=remaining.share,
        width=_BAR_WIDTH,
        complete_style="green",
        finished_style="green",
    )
    text = f" {remaining.share:.0%}, about {duration(remaining.left_s)} left"
    made.add_row(Text("progress", "dim"), bar, Text(text))
    return made


def _row(label: str, text: str) -> Text:
    made = Text("", no_wrap=True, overflow="ellipsis")
    made.append(label.ljust(_LABEL_WIDTH)[:_LABEL_WIDTH], "dim")
    return made.append(text)


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


class TrainingDisplay:
    """Shows a training: a panel at the bottom of a terminal, or lines elsewhere.

    Args:
        console: Terminal; by default standard error.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._shown_s = -math.inf
        self._is_last_shown = True
        self._region: LiveRegion | None = LiveRegion(self._console, transient=True)
        if not self._region.claim():
            self._region = None

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot; where nothing is drawn, a line every few seconds."""
        self._snapshot = snapshot
        if self._region is not None:
            if not self._region.is_started:
                self._region.start(self._render)
            return
        self._is_last_shown = self._clock() - self._shown_s >= LINES_EVERY_S
        if self._is_last_shown:
            self._shown_s = self._clock()
            print_line(line(snapshot))

    def print(self, text: str) -> None:
        """Print a permanent line."""
        if self._region is not None and self._region.is_started:
            self._region.print(text)
        else:
            print_line(text)

    def close(self) -> None:
        """Remove the panel and print the last state."""
        if self._region is not None:
            self._region.close()
        if self._snapshot is not None and (self._region is not None or not self._is_last_shown):
            print_line(line(self._snapshot))
        self._is_last_shown = True
        self._snapshot = None

    def _render(self) -> RenderableType:
        snapshot = self._snapshot
        return "" if snapshot is None else panel(snapshot, self._console.width)
