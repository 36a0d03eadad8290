"""Text of a snapshot for displays: title, labelled rows, and the lines printed at the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.runs.outliers import spans
from syncline.runs.run_progress import Progress
from syncline.train.console.formatting import counted, duration, shortened
from syncline.train.console.snapshot import NodeShare, Phase, Snapshot
from syncline.train.controller.goodput import Goodput

PROGRESS = "progress"
"""Label of the row that has a bar."""
METRICS_LINES = 3
"""Maximal number of lines for metrics."""
_MANY_NODES = 3
"""More nodes are counted instead of listed."""
_SUMMARY_METRICS = 6


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row. Its parts are separated by commas; parts that do not fit are left out."""

    label: str
    parts: tuple[str, ...]
    weight: int
    """Rows with high weights stay if not all fit."""
    lines: int = 1
    """Maximal number of lines."""


def title(snapshot: Snapshot) -> str:
    """Return a title such as `vit: training, 1 min 05 s`."""
    return f"{snapshot.name}: {snapshot.phase.value}, {duration(snapshot.running_s)}"


def rows(snapshot: Snapshot) -> list[Row]:
    """Return the rows in display order."""
    made = [
        Row(
            label=PROGRESS,
            parts=_progress(snapshot.progress) if snapshot.progress is not None else (),
            weight=10,
        ),
        Row(
            label="metrics",
            parts=tuple(f"{name} {text}" for name, text in snapshot.metrics),
            weight=9,
            lines=METRICS_LINES,
        ),
        Row(label="reports", parts=_reports(snapshot), weight=6),
        Row(label="workers", parts=_workers(snapshot.nodes), weight=7),
        Row(label="attempt", parts=_attempt(snapshot), weight=8),
        Row(
            label="goodput",
            parts=_goodput(snapshot.goodput) if snapshot.goodput is not None else (),
            weight=5,
        ),
        Row(label="checkpoint", parts=_checkpoint(snapshot), weight=4),
        Row(label="began", parts=(snapshot.start,) if snapshot.start else (), weight=1),
        Row(label="results", parts=(snapshot.path,), weight=2),
        Row(label="page", parts=(snapshot.page,) if snapshot.page else (), weight=3),
    ]
    return [row for row in made if row.parts]


def fitting(rows: Sequence[Row], lines: int) -> list[Row]:
    """Return the rows that stay if there is room for this number of lines, one line each."""
    kept = sorted(rows, key=lambda row: -row.weight)[: max(0, lines)]
    return [row for row in rows if row in kept]


def packed(parts: Sequence[str], width: int, lines: int) -> list[str]:
    """Return the parts in at most `lines` lines of `width` characters, with the number of omitted
    parts at the end.
    """
    made = [""]
    for at, part in enumerate(parts):
        longer = f"{made[-1]}, {part}" if made[-1] else part
        rest = f", and {len(parts) - at - 1} more"
        is_last_line = len(made) == lines
        if (
            not made[-1]
            or len(longer) + (len(rest) if is_last_line and at + 1 < len(parts) else 0) <= width
        ):
            made[-1] = longer
        elif is_last_line:
            made[-1] += f", and {len(parts) - at} more"
            break
        else:
            made[-1] += ","
            made.append(part)
    return made


def closing_lines(snapshot: Snapshot) -> list[str]:
    """Return the lines printed after a run; none if no attempt started, as the error explains
    why.
    """
    if not snapshot.attempt:
        return []
    metrics = ", ".join(f"{name}={text}" for name, text in snapshot.metrics[:_SUMMARY_METRICS])
    took = f"after {duration(snapshot.running_s)}"
    attempts = f" in {snapshot.attempt} attempts" if snapshot.attempt > 1 else ""
    if snapshot.phase is Phase.FINISHED:
        lines = [
            f"syncline: training {snapshot.name} finished {took}{attempts}"
            f"{f' with {metrics}' if metrics else ''}"
        ]
        if snapshot.goodput is not None:
            lines.append(f"  {snapshot.goodput}")
    else:
        how = "was interrupted" if snapshot.phase is Phase.INTERRUPTED else "failed"
        lines = [f"syncline: training {snapshot.name} {how} {took}{attempts}"]
    if snapshot.checkpoint:
        lines.append(f"  last checkpoint: {snapshot.checkpoint}")
    if snapshot.best_checkpoint and snapshot.best_checkpoint != snapshot.checkpoint:
        lines.append(f"  best checkpoint: {snapshot.best_checkpoint}")
    lines.append(f"  results: {snapshot.path}")
    return lines


def _progress(progress: Progress) -> tuple[str, ...]:
    share = f"{100 * progress.share:.0f} %"
    done = (
        (f"{progress.unit} {progress.done:.6g} of {progress.total:.6g}", share)
        if progress.unit
        else (share,)
    )
    return (
        done
        if progress.left_s is None or progress.share >= 1
        else (*done, f"{_about(progress.left_s)} left")
    )


def _reports(snapshot: Snapshot) -> tuple[str, ...]:
    if not snapshot.reports:
        return ()
    made = (f"{snapshot.reports:,}",)
    return (
        made
        if snapshot.reports_per_s is None
        else (*made, f"{snapshot.reports_per_s:.3g} per second")
    )


def _workers(nodes: Sequence[NodeShare]) -> tuple[str, ...]:
    if not nodes:
        return ()
    total = sum(node.workers for node in nodes)
    gpus = sum(len(node.gpu_ids) for node in nodes)
    if len(nodes) == 1:
        return (f"{total} on {nodes[0].hostname}", *_gpus(nodes[0].gpu_ids))
    whole = (f"{total} on {len(nodes)} nodes", *((counted(gpus, "GPU"),) if gpus else ()))
    if len(nodes) > _MANY_NODES:
        return whole
    return (
        *whole,
        *(
            " ".join(
                (f"{node.hostname}: {node.workers}", *(f"({text})" for text in _gpus(node.gpu_ids)))
            )
            for node in nodes
        ),
    )


def _gpus(ids: Sequence[str]) -> tuple[str, ...]:
    """Return `GPUs 0-3, 6`; ids that are not numbers are not grouped."""
    if not ids:
        return ()
    if not all(name.isdecimal() for name in ids):
        return (f"GPU{'s' if len(ids) > 1 else ''} {' '.join(ids)}",)
    numbers = {int(name) for name in ids}
    return (f"GPU{'s' if len(numbers) > 1 else ''} {' '.join(spans(numbers))}",)


def _attempt(snapshot: Snapshot) -> tuple[str, ...]:
    if snapshot.attempt <= 1:
        return ()
    restarts = (
        (f"{counted(snapshot.restarts, 'restart')} after failures",) if snapshot.restarts else ()
    )
    resizes = (
        (f"{counted(snapshot.resizes, 'change')} of the number of workers",)
        if snapshot.resizes
        else ()
    )
    return (f"number {snapshot.attempt}", *restarts, *resizes)


def _goodput(goodput: Goodput) -> tuple[str, ...]:
    lost = {"data": goodput.data, "report": goodput.report, "restarts": goodput.restarts}
    return (
        f"{100 * goodput.good:.1f} %",
        *(f"{name} {100 * share:.1f} %" for name, share in lost.items()),
    )


def _checkpoint(snapshot: Snapshot) -> tuple[str, ...]:
    if not snapshot.checkpoint:
        return ()
    made = (_below(snapshot.checkpoint, snapshot.path), f"{_about(snapshot.checkpoint_age_s)} ago")
    if not snapshot.best_checkpoint:
        return made
    is_best = snapshot.best_checkpoint == snapshot.checkpoint
    best = "the best" if is_best else f"best: {_below(snapshot.best_checkpoint, snapshot.path)}"
    return (*made, best)


def _about(seconds: float) -> str:
    """Return a duration in whole seconds."""
    return duration(seconds) if seconds >= 10 else f"{round(seconds)} s"


def _below(path: str, directory: str) -> str:
    """Return a path relative to the run directory if it is inside."""
    return shortened(path.removeprefix(directory).lstrip("/"), 60)
