"""Values of the pages of reinforcement learning, computed from the record. Pure.

Records are untrusted: values of an unknown form count as missing. Covered: returns over steps and
time, with mean and interval over several runs or trials; losses; time split; env runners; modules;
episodes; videos; events.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syncline.rl.records.bottleneck import RECENT, Bottleneck, bottleneck
from syncline.runs import Run
from syncline.runs.json_values import finite
from syncline.runs.metric_series import Series, member_order, thinned

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

RETURN = "env_runners/episode_return_mean"
RETURN_MIN = "env_runners/episode_return_min"
RETURN_MAX = "env_runners/episode_return_max"
LENGTH = "env_runners/episode_len_mean"
EVALUATION = f"evaluation/{RETURN}"
STEPS = "num_env_steps_sampled_lifetime"
STEPS_PER_S = "num_env_steps_sampled_throughput_per_sec"
SECONDS = "time_total_s"
EPISODES_FILE = "rl/episodes.jsonl"
MAX_POINTS = 400
MAX_LINES = 2_000
"""Lines of the file of episodes that are read."""
SHOWN_EPISODES = 200
MAX_MODULES = 50
MAX_VIDEOS = 24
MAX_RUNNERS = 512
FEWEST = 4
"""Curves of which an interval of the mean is drawn."""
GRID = 100
"""Positions at which several curves are averaged."""
LOSSES: Mapping[str, str] = {
    "policy_loss": "policy loss",
    "vf_loss": "value loss",
    "qf_loss": "Q loss",
    "total_loss": "total loss",
    "world_model_total_loss": "loss of the world model",
    "mean_kl_loss": "KL divergence of the update",
    "entropy": "entropy",
    "vf_explained_var": "explained variance of values",
    "qf_mean": "mean Q value",
    "td_error_mean": "TD error",
    "alpha_value": "temperature alpha",
    "default_optimizer_learning_rate": "learning rate",
    "gradients_default_optimizer_global_norm": "norm of gradients",
}
"""Metrics of learners that have a chart, with their titles."""
_VIDEO = re.compile(r"videos/[\w.-]{1,200}\.(mp4|gif)")
_LEARNERS = "learners/"
_MAX_TEXT = 300


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve, ready to draw."""

    x: Sequence[float] = ()
    y: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Band:
    """Mean of several curves, and an interval around it."""

    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    count: int
    """Number of curves."""


@dataclass(frozen=True, kw_only=True)
class RunnerRow:
    """An env runner."""

    index: int
    pid: int | None
    restarts: int
    env_steps: float | None
    shares: Mapping[str, float]
    """Share of its time in `environment`, `inference`, `other` and `waiting`."""
    cpu_percent: float | None
    rss_bytes: float | None


@dataclass(frozen=True, kw_only=True)
class ModuleRow:
    """A module or an agent."""

    kind: str
    """"module" or "agent"."""
    name: str
    episode_return: float | None
    steps: float | None
    """Sampled steps so far."""
    trained: float | None
    """Trained steps so far."""
    parameters: float | None


@dataclass(frozen=True, kw_only=True)
class Video:
    """A video of an episode."""

    file: str
    caption: str

    @property
    def is_image(self) -> bool:
        """True for a GIF."""
        return self.file.endswith(".gif")


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A finished episode."""

    iteration: int
    episode_return: float
    length: float | None
    duration_s: float | None
    agents: Mapping[str, float] = field(default_factory=dict)


# -- curves


def curve(series: Series, name: str, member: str, over: str) -> Curve:
    """Return a metric over another one, such as `STEPS`, or over the number of the report if that
    is "". Values that are not finite are left out.
    """
    np = _numpy()
    points = series.points(name, member)
    x, y = points.iterations + 1, points.values
    if over:
        positions = series.points(over, member)
        _, of_position, of_value = np.intersect1d(
            positions.iterations, points.iterations, assume_unique=True, return_indices=True
        )
        x, y = positions.values[of_position], points.values[of_value]
    known = np.isfinite(x) & np.isfinite(y)
    thin_x, thin_y = thinned(x[known], y[known], MAX_POINTS)
    return Curve(x=thin_x, y=thin_y)


def band(curves: Sequence[Curve]) -> Band | None:
    """Return mean and 95 % interval of the mean over curves, on the range that all of them cover;
    None for fewer than two curves with such a range. Of less than `FEWEST` curves the interval is
    too wide to tell anything, so the band is their range.
    """
    np = _numpy()
    found = [each for each in curves if len(each.x) > 1]
    if len(found) < 2:
        return None
    start, end = max(each.x[0] for each in found), min(each.x[-1] for each in found)
    if not start < end:
        return None
    x = np.linspace(start, end, GRID)
    values = np.stack([np.interp(x, each.x, each.y) for each in found])
    mean = values.mean(0)
    low, high = values.min(0), values.max(0)
    if len(found) >= FEWEST:
        half = _t95(len(found)) * values.std(0, ddof=1) / np.sqrt(len(found))
        low, high = mean - half, mean + half
    return Band(
        x=x.tolist(), mean=mean.tolist(), low=low.tolist(), high=high.tolist(), count=len(found)
    )


def is_rl(series: Series) -> bool:
    """Return True if a run or its trials report returns of episodes."""
    return bool(series.members_of(RETURN))


_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""97.5 % points of Student's t distribution by degrees of freedom, from 1."""


def _t95(count: int) -> float:
    return _T95[count - 2] if count - 2 < len(_T95) else 2.0


# -- learners


def modules(series: Series, member: str = "0") -> list[str]:
    """Return the modules that learners report about."""
    found = dict.fromkeys(
        name.removeprefix(_LEARNERS).rpartition("/")[0]
        for name in series.last(member)
        if name.startswith(_LEARNERS) and name.rpartition("/")[2] in LOSSES
    )
    return [name for name in found if name and name != "__all_modules__"][:MAX_MODULES]


def module_rows(series: Series, member: str = "0") -> list[ModuleRow]:
    """Return modules and agents with their returns and counts."""
    last = series.last(member)
    return [
        *_rows(last, "module", "episode_return", f"{_LEARNERS}"),
        *_rows(last, "agent", "episode_return", ""),
    ]


def _rows(last: Mapping[str, object], kind: str, value: str, learners: str) -> list[ModuleRow]:
    prefixes = tuple(f"env_runners/{kind}_{value}{plural}_mean/" for plural in ("s", ""))
    steps = f"env_runners/num_{kind}_steps_sampled_lifetime/"
    names = dict.fromkeys(
        name.removeprefix(prefix)
        for prefix in (*prefixes, steps)
        for name in last
        if name.startswith(prefix)
    )
    return [
        ModuleRow(
            kind=kind,
            name=name[:_MAX_TEXT],
            episode_return=next(
                (
                    each
                    for prefix in prefixes
                    if (each := finite(last.get(prefix + name))) is not None
                ),
                None,
            ),
            steps=finite(last.get(steps + name)),
            trained=(
                finite(last.get(f"{learners}{name}/num_module_steps_trained_lifetime"))
                if learners
                else None
            ),
            parameters=(
                finite(last.get(f"{learners}{name}/num_trainable_parameters")) if learners else None
            ),
        )
        for name in list(names)[:MAX_MODULES]
    ]


# -- time


def limits(run: Run, member: str = "0") -> Bottleneck | None:
    """Return where the time of the last `RECENT` iterations went, and what limits."""
    seconds = {}
    for name in run.series.names:
        if name.startswith("time_split/"):
            values = run.series.points(name, member).values[-RECENT:]
            seconds[name.removeprefix("time_split/")] = float(values.sum())
    return bottleneck(
        seconds,
        num_env_runners=int(option(run, "num_env_runners") or 0),
        num_envs=int(option(run, "num_envs_per_env_runner") or 1),
    )


def option(run: Run, name: str) -> float | None:
    """Return a number in the configuration."""
    options = run.config.get("all_options")
    return finite(options.get(name)) if isinstance(options, Mapping) else None


def runner_rows(run: Run) -> list[RunnerRow]:
    """Return the env runners by index."""
    found = []
    for name, samples in sorted(run.samples.items(), key=lambda each: member_order(each[0])):
        if not name.isdecimal() or not samples:
            continue
        last = samples[-1]
        spent, usage = _mapping(last.get("spent")), _mapping(last.get("usage"))
        attempt, pid = last.get("attempt"), last.get("pid")
        steps = finite(spent.get("env_steps"))
        found.append(
            RunnerRow(
                index=int(name),
                pid=pid if isinstance(pid, int) else None,
                restarts=attempt - 1 if isinstance(attempt, int) else 0,
                env_steps=steps,
                shares=_runner_shares(samples),
                cpu_percent=finite(usage.get("cpu_percent")),
                rss_bytes=finite(usage.get("rss_bytes")),
            )
        )
    return found[:MAX_RUNNERS]


def _runner_shares(samples: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the shares of time between the first and the last sample of the latest process."""
    attempt = samples[-1].get("attempt")
    own = [each for each in samples if each.get("attempt") == attempt]
    first, last = own[0], own[-1]
    lasted = (finite(last.get("time")) or 0.0) - (finite(first.get("time")) or 0.0)
    if lasted <= 0:
        return {}
    shares = {}
    for part in ("environment", "inference", "other"):
        values = [
            finite(_mapping(each.get("spent")).get(f"{part}_s")) or 0.0 for each in (first, last)
        ]
        shares[part] = min(1.0, max(0.0, (values[1] - values[0]) / lasted))
    return {**shares, "waiting": max(0.0, 1.0 - sum(shares.values()))}


# -- episodes, videos, events


def episodes(lines: Sequence[Mapping[str, object]]) -> list[Episode]:
    """Return the last episodes in the lines of `EPISODES_FILE`, the latest first."""
    found: list[Episode] = []
    for line in reversed(lines):
        given, iteration = line.get("episodes"), line.get("iteration")
        for each in reversed(given if isinstance(given, list) else []):
            value = finite(each.get("return")) if isinstance(each, Mapping) else None
            if value is None or not isinstance(iteration, int):
                continue
            agents = _mapping(each.get("agents"))
            found.append(
                Episode(
                    iteration=iteration + 1,
                    episode_return=value,
                    length=finite(each.get("length")),
                    duration_s=finite(each.get("duration_s")),
                    agents={
                        str(name)[:_MAX_TEXT]: number
                        for name, other in list(agents.items())[:20]
                        if (number := finite(other)) is not None
                    },
                )
            )
        if len(found) >= SHOWN_EPISODES:
            break
    return found[:SHOWN_EPISODES]


def videos(run: Run) -> list[Video]:
    """Return the videos whose files exist, the latest first."""
    there = set(run.names_in("videos"))
    found: dict[str, Video] = {}
    for event in reversed(run.events):
        file = event.get("file")
        if event.get("event") != "video" or not isinstance(file, str):
            continue
        if not _VIDEO.fullmatch(file) or file.partition("/")[2] not in there or file in found:
            continue
        value, steps = finite(event.get("episode_return")), finite(event.get("env_steps"))
        length = finite(event.get("length"))
        parts = [f"after {steps:,.0f} steps"] if steps is not None else []
        parts += [f"return {value:g}"] if value is not None else []
        parts += [f"length {length:g}"] if length is not None else []
        found[file] = Video(file=file, caption=", ".join(parts))
    return list(found.values())[:MAX_VIDEOS]


_EVENTS = {
    "env_runner_restarted": "env runner restarted",
    "env_runner_lost": "env runner lost",
    "module_added": "module added",
    "module_removed": "module removed",
}


def event_text(event: Mapping[str, object]) -> tuple[str, str]:
    """Return name and details of an event as texts."""
    what = str(event.get("event"))
    rest = {key: value for key, value in event.items() if key not in ("time", "event")}
    if what == "started":
        return ("continued" if event.get("continued") else "started"), ""
    if what == "failure":
        return "failure", str(event.get("error"))[:_MAX_TEXT]
    if what == "evaluation":
        value = finite(event.get("episode_return_mean"))
        count = finite(event.get("num_episodes"))
        parts = [f"return {value:.6g}"] if value is not None else []
        parts += [f"{count:.0f} episodes"] if count is not None else []
        return what, ", ".join(parts)
    if what in _EVENTS:
        index = event.get("runner", event.get("module"))
        error = f": {event['error']}" if "error" in event else ""
        return _EVENTS[what], f"{index}{error}"[:_MAX_TEXT]
    return what[:_MAX_TEXT], (
        json.dumps(rest, default=str, ensure_ascii=False)[:_MAX_TEXT] if rest else ""
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _numpy() -> Any:
    """Load numpy on first use: listing runs does not need it."""
    return importlib.import_module("numpy")
