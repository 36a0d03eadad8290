"""Values of the training page, computed from the record. Pure.

Records are untrusted: invalid values count as missing. Not covered: curves of metrics
(`runs.metric_series`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from syncline.runs import Attempt, Run
from syncline.runs.json_values import finite
from syncline.runs.metric_series import member_order, numbers
from syncline.runs.verdicts import EVENT, OVER, verdicts

Sample = Mapping[str, object]
Curve = tuple[list[float], list[float]]
"""Times in seconds since the epoch, and values."""

PARTS: Mapping[str, str] = {
    "compute": "computing",
    "communication": "communicating",
    "data": "waiting for data",
    "report": "reporting",
}
"""Parts of a rank's time, with their labels."""
USAGE: Mapping[str, tuple[str, str, float]] = {
    # key of a sample: (chart title, unit, scale factor)
    "cpu_percent": ("Process CPU", "% of a core", 1.0),
    "rss_bytes": ("Process memory", "GiB", 1 / 1024**3),
    "read_bytes_per_s": ("Disk reads", "MB/s", 1e-6),
    "written_bytes_per_s": ("Disk writes", "MB/s", 1e-6),
}
HOST_USAGE: Mapping[str, tuple[str, str, float]] = {
    "host_cpu_percent": ("Machine CPU", "%", 1.0),
    "host_memory_percent": ("Machine memory", "%", 1.0),
    "received_bytes_per_s": ("Machine network, received", "MB/s", 1e-6),
    "sent_bytes_per_s": ("Machine network, sent", "MB/s", 1e-6),
}
"""Values that all workers of a machine share."""
GPU_USAGE: Mapping[str, tuple[str, str, float]] = {
    "util_percent": ("GPU", "% busy", 1.0),
    "memory_bytes": ("GPU memory", "GiB", 1 / 1024**3),
}
MAX_WORKERS = 4_096
"""Maximum workers of an attempt."""
MAX_CURVES = 64
"""Maximum ranks with curves."""
MAX_MARKS = 200
RATE_REPORTS = 100
"""Points of a curve over which the rate of steps is taken."""
_MAX_DETAIL_LENGTH = 300
_MAX_NAME_LENGTH = 200
_MAX_GPUS = 16


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """State of a worker of the latest attempt."""

    rank: str
    host: str
    pid: int | None
    device: str
    """`cpu`, or the worker's GPUs."""
    state: str
    """running, finished, errored, killed, or ended."""
    cpu_percent: float | None
    rss_bytes: float | None
    gpu_percent: float | None
    gpu_memory_bytes: float | None
    shares: Mapping[str, float]
    """Share of time for each of `PARTS` in this attempt; empty if unknown."""
    waited_for: float | None
    """Share of the last seconds in which the other ranks waited for this one."""
    verdict: str
    """Cause that the diagnosis has found last for this rank in the attempt; empty if none."""


@dataclass(frozen=True, kw_only=True)
class EventView:
    """An event for display."""

    time: float
    what: str
    detail: str
    number: int
    """Position among the events of the run."""


def worker_rows(run: Run) -> list[WorkerRow]:
    """Return the workers of the latest attempt, by rank."""
    attempts = run.attempts
    if not attempts:
        return []
    latest, state = attempts[-1], run.state
    found = _verdicts(run, latest)
    rows = [
        _worker_row(run, latest, worker, state, found.get(str(worker.get("rank")), ""))
        for worker in latest.workers[:MAX_WORKERS]
    ]
    return sorted(rows, key=lambda row: member_order(row.rank))


def goodput(run: Run) -> float | None:
    """Return the share of the run's time spent on useful training so far; None if unknown."""
    for event in reversed(run.events):
        if event.get("event") == "goodput":
            return finite(event.get("goodput"))
        if event.get("event") == "attempt":
            break
    attempts = run.attempts
    if not attempts:
        return None
    shares = [row.shares for row in worker_rows(run) if row.shares]
    if not shares:
        return None
    training = sum(each["compute"] + each["communication"] for each in shares) / len(shares)
    return training * _kept_share(run, attempts)


def model_flops(run: Run) -> tuple[float, float | None] | None:
    """Return the model's floating-point operations per second over the last reports of rank 0, and
    their share of the peak of all workers' devices; None where the configuration of the run
    has no `flops_per_step`, or no `peak_flops_per_s`.
    """
    config = run.config.get("run_config")
    if not isinstance(config, Mapping):
        return None
    per_step = finite(config.get("flops_per_step"))
    name = next(iter(numbers(run.summary.metrics)), None)
    if per_step is None or name is None or not run.attempts:
        return None
    latest = run.attempts[-1]
    points = run.series.points(name[0], "0")
    began = int(points.iterations.searchsorted(latest.first_report or 0))
    steps = points.iterations[began:][-RATE_REPORTS:]
    times = points.times[began:][-RATE_REPORTS:]
    if len(steps) < 2 or times[-1] <= times[0]:
        return None
    flops = per_step * float(steps[-1] - steps[0]) / float(times[-1] - times[0])
    peak = finite(config.get("peak_flops_per_s"))
    workers = len(latest.workers)
    return flops, flops / (peak * workers) if peak and workers else None


def time_shares(sample: Sample) -> dict[str, float]:
    """Return the share of each of `PARTS` in a sample; empty if it has no times."""
    spent = sample.get("spent")
    if not isinstance(spent, Mapping):
        return {}
    total = finite(spent.get("total_s"))
    if total is None or total <= 0:
        return {}
    shares = {
        part: min(1.0, max(0.0, (finite(spent.get(f"{part}_s")) or 0.0) / total))
        for part in ("communication", "data", "report")
    }
    return {"compute": max(0.0, 1.0 - sum(shares.values())), **shares}


def usage_curves(run: Run, key: str) -> dict[str, Curve]:
    """Return the curves of `USAGE[key]` by rank; ranks without values are left out."""
    curves = {rank: usage_curve(samples, key, USAGE[key][2]) for rank, samples in _by_rank(run)}
    return {rank: curve for rank, curve in curves.items() if curve[0]}


def host_curves(run: Run, key: str) -> dict[str, Curve]:
    """Return the curves of `HOST_USAGE[key]` by machine, each from the lowest rank there in the
    latest attempt.
    """
    found: dict[str, Curve] = {}
    for row in worker_rows(run):
        if row.host not in found:
            curve = usage_curve(run.samples.get(row.rank, ()), key, HOST_USAGE[key][2])
            if curve[0]:
                found[row.host] = curve
    return found


def gpu_curves(run: Run, key: str) -> dict[str, Curve]:
    """Return the curves of `GPU_USAGE[key]` by GPU ("GPU 0 of rank 1")."""
    scale = GPU_USAGE[key][2]
    found: dict[str, Curve] = {}
    for rank, samples in _by_rank(run):
        for sample in samples:
            for gpu in _gpus(sample):
                value = finite(gpu.get(key))
                if value is not None:
                    times, values = found.setdefault(
                        f"GPU {gpu.get('id')} of rank {rank}", ([], [])
                    )
                    times.append(_time(sample))
                    values.append(value * scale)
    return found


def share_curves(run: Run, part: str) -> dict[str, Curve]:
    """Return by rank the share of time of one of `PARTS` between consecutive samples."""
    found = {}
    for rank, samples in _by_rank(run):
        times, values = [], []
        before: Mapping[str, object] = {}
        for sample in samples:
            spent = sample.get("spent")
            if not isinstance(spent, Mapping):
                continue
            total = (finite(spent.get("total_s")) or 0.0) - (finite(before.get("total_s")) or 0.0)
            if total < 0:  # a new attempt
                before, total = {}, finite(spent.get("total_s")) or 0.0
            if total > 0:
                differences = {
                    name: (finite(spent.get(f"{name}_s")) or 0.0)
                    - (finite(before.get(f"{name}_s")) or 0.0)
                    for name in PARTS
                }
                differences["compute"] = total - sum(
                    differences[name] for name in ("communication", "data", "report")
                )
                times.append(_time(sample))
                values.append(min(1.0, max(0.0, differences[part] / total)))
            before = spent
        if times:
            found[rank] = (times, values)
    return found


def event_views(run: Run, most: int = 1_000) -> list[EventView]:
    """Return the last `most` events for display, in order."""
    found: list[EventView] = []
    for number in range(len(run.events) - 1, -1, -1):
        if len(found) == most:
            break
        event = run.events[number]
        time, described = finite(event.get("time")), _describe_event(event)
        if time is not None and described is not None:
            what, detail = described
            found.append(
                EventView(
                    time=time,
                    what=what[:_MAX_NAME_LENGTH],
                    detail=detail[:_MAX_DETAIL_LENGTH],
                    number=number,
                )
            )
    return found[::-1]


def restart_marks(run: Run, over: Literal["iteration", "time"]) -> list[tuple[float, str]]:
    """Return (position, label) of restarts on an axis of report numbers or time."""
    places = [
        (attempt.began if over == "time" else attempt.first_report, f"attempt {attempt.number}")
        for attempt in run.attempts[1:][-MAX_MARKS:]
    ]
    return [(float(place), label) for place, label in places if place is not None]


def first_start(run: Run) -> float:
    """Return the time of the first start of the run, or of its latest one if that is unknown."""
    for event in run.events:
        time = finite(event.get("time"))
        if time is not None:
            return time
    return run.started or 0.0


def usage_curve(samples: Sequence[Sample], key: str, scale: float) -> Curve:
    """Return the curve of a value of usage; samples without it are left out."""
    points = [
        (_time(sample), value * scale)
        for sample in samples
        if (value := _usage(sample, key)) is not None
    ]
    return [x for x, _ in points], [y for _, y in points]


def _by_rank(run: Run) -> list[tuple[str, Sequence[Mapping[str, object]]]]:
    return sorted(run.samples.items(), key=lambda item: member_order(item[0]))[:MAX_CURVES]


def _worker_row(
    run: Run, attempt: Attempt, worker: Mapping[str, object], state: str, verdict: str
) -> WorkerRow:
    rank = str(worker.get("rank"))[:_MAX_NAME_LENGTH]
    samples = [sample for sample in run.samples.get(rank, ()) if _time(sample) >= attempt.began]
    last: Sample = samples[-1] if samples else {}
    spent = last.get("spent")
    gpu_ids = worker.get("gpu_ids")
    gpus = _gpus(last)
    pid = worker.get("pid")
    return WorkerRow(
        rank=rank,
        host=str(worker.get("hostname") or worker.get("node_ip") or "-")[:_MAX_NAME_LENGTH],
        pid=pid if isinstance(pid, int) else None,
        device="GPU " + ", ".join(map(str, gpu_ids[:_MAX_GPUS]))[:_MAX_NAME_LENGTH]
        if isinstance(gpu_ids, list) and gpu_ids
        else "cpu",
        state=_worker_state(attempt, rank, state),
        cpu_percent=_usage(last, "cpu_percent"),
        rss_bytes=_usage(last, "rss_bytes"),
        gpu_percent=max(
            (value for gpu in gpus if (value := finite(gpu.get("util_percent"))) is not None),
            default=None,
        ),
        gpu_memory_bytes=sum(finite(gpu.get("memory_bytes")) or 0.0 for gpu in gpus)
        if gpus
        else None,
        shares=time_shares(last),
        waited_for=finite(spent.get("waited_for")) if isinstance(spent, Mapping) else None,
        verdict=verdict,
    )


def _verdicts(run: Run, attempt: Attempt) -> dict[str, str]:
    """Return the cause that the diagnosis has found last for ranks, by rank."""
    events = (each for each in run.events if (finite(each.get("time")) or 0.0) >= attempt.began)
    return {str(rank): str(each.cause) for each in verdicts(events) for rank in each.ranks}


def _worker_state(attempt: Attempt, rank: str, state_of_run: str) -> str:
    if rank in attempt.failures:
        return "errored"
    if state_of_run == "running":
        return "running" if attempt.ended is None else "ended"
    return {"finished": "finished", "killed": "killed"}.get(state_of_run, "ended")


def _kept_share(run: Run, attempts: Sequence[Attempt]) -> float:
    """Return the fraction of time since the first attempt spent in attempts, excluding the work
    after the last checkpoint of each failed attempt.
    """
    times = [_time(sample) for samples in run.samples.values() for sample in samples[-1:]]
    end = max([attempts[-1].began, *times])
    total = end - attempts[0].began
    if total <= 0:
        return 1.0
    saved = sorted(
        time
        for event in run.events
        if event.get("event") == "checkpoint" and (time := finite(event.get("time"))) is not None
    )
    kept = end - attempts[-1].began
    for attempt in attempts[:-1]:
        place = bisect_right(saved, attempt.ended or end)
        kept += max(0.0, saved[place - 1] - attempt.began) if place else 0.0
    return min(1.0, max(0.0, kept / total))


def _describe_event(event: Mapping[str, object]) -> tuple[str, str] | None:
    what = str(event.get("event"))
    if what == "started":
        return ("continued" if event.get("continued") else "started"), ""
    if what == "attempt":
        workers = event.get("workers")
        count = len(workers) if isinstance(workers, list) else 0
        return f"attempt {event.get('number')}", f"{count} worker{'s'[: count != 1]}"
    if what == "checkpoint":
        return "checkpoint", f"{event.get('name')}, report {event.get('report')}"
    if what == "failure":
        ranks = event.get("ranks")
        texts = (
            [f"rank {rank}: {text}" for rank, text in ranks.items()]
            if isinstance(ranks, Mapping)
            else []
        )
        return f"attempt {event.get('attempt')} failed", "; ".join(texts)
    if what == EVENT:
        return what, str(event.get("text"))
    if what == OVER:
        return "verdict over", ""
    if what in ("errored", "aborted", "finished"):
        return what, ""
    if what in ("step_times", "goodput"):
        return None
    rest = {key: value for key, value in event.items() if key not in ("time", "event")}
    return what, json.dumps(rest, default=str, ensure_ascii=False) if rest else ""


def _time(sample: Sample) -> float:
    return finite(sample.get("time")) or 0.0


def _usage(sample: Sample, key: str) -> float | None:
    usage = sample.get("usage")
    return finite(usage.get(key)) if isinstance(usage, Mapping) else None


def _gpus(sample: Sample) -> list[Mapping[str, object]]:
    usage = sample.get("usage")
    gpus = usage.get("gpus") if isinstance(usage, Mapping) else None
    return (
        [gpu for gpu in gpus[:_MAX_GPUS] if isinstance(gpu, Mapping)]
        if isinstance(gpus, list)
        else []
    )
