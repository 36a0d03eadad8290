"""`RunStatus`: sees what the controller does, and makes snapshots of it. No I/O; the clock is
given.

Not thread-safe: the controller's thread alone tells and asks, so that nothing is locked between a
report and its record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline.train import metric_values
from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.console.progress import ProgressMeter
from syncline.train.console.snapshot import NodeShare, Phase, Snapshot
from syncline.train.console.values import text_of
from syncline.train.controller import events
from syncline.train.controller.events import Instruction
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.transitions import State

MAX_METRICS = 100
"""A snapshot has no more of them."""
RATE_WINDOW_S = 10.0
"""Reports per second are counted over so long."""

_PHASES: Mapping[State, Phase] = {
    State.INITIALIZING: Phase.STARTING,
    State.SCHEDULING: Phase.WAITING,
    State.STARTING: Phase.STARTING,
    State.RUNNING: Phase.TRAINING,
    State.DRAINING: Phase.STOPPING,
    State.RESTARTING: Phase.RESTARTING,
    State.FINISHING: Phase.FINISHING,
    State.FINISHED: Phase.FINISHED,
    State.ERRORED: Phase.FAILED,
    State.ABORTED: Phase.INTERRUPTED,
}


class RunStatus:
    """One run, as far as people see it.

    Args:
        name: The run's.
        path: The run directory, for people.
        config: `train_loop_config`, which may say where the counters among the metrics end.
        goodput: The controller's own.
        clock: Seconds, never backwards.
    """

    def __init__(
        self,
        *,
        name: str,
        path: str,
        config: Mapping[str, Any],
        goodput: GoodputMeter,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._path = path
        self._goodput = goodput
        self._clock = clock
        self._began = clock()
        self._page: str | None = None
        self._progress = ProgressMeter(config)
        self._attempt = 0
        self._restarts = 0
        self._resizes = 0
        self._start = ""
        self._nodes: tuple[NodeShare, ...] = ()
        self._metrics: Mapping[str, Any] = {}
        self._reports = 0
        self._counts: deque[tuple[float, int]] = (
            deque()
        )  # reports so far, at snapshots of the last seconds
        self._checkpoint: Checkpoint | None = None
        self._checkpoint_moment = 0.0
        self._best: Checkpoint | None = None
        self._is_validating = False
        self._seers: Mapping[type, Callable[[Any], None]] = {
            events.StartGroup: self._group_starts,
            events.LaunchTraining: self._training_starts,
            events.RecordReport: self._reported,
            events.NotifyRestart: self._restarts_again,
            events.NotifyResize: self._resizes_again,
            events.StopGroup: self._group_stops,
            events.DrainValidations: self._validations_drain,
        }

    def see(self, instruction: Instruction) -> None:
        """The controller does this."""
        seer = self._seers.get(type(instruction))
        if seer is not None:
            seer(instruction)

    def opened(self, workers: Sequence[Worker], start: str, page: str | None) -> None:
        """The workers of an attempt run; `start` is where they begin, in words. `page` shows the
        run.
        """
        self._start = start
        self._page = page
        by_node: dict[str, list[Worker]] = {}
        for worker in workers:
            by_node.setdefault(worker.node_id, []).append(worker)
        self._nodes = tuple(map(_share, by_node.values()))

    def committed(self, latest: Checkpoint, best: Checkpoint | None) -> None:
        """A checkpoint is in the run directory; `best` has the best score so far, if there are
        scores.
        """
        self._checkpoint, self._checkpoint_moment = latest, self._clock()
        self._best = best

    @property
    def running_s(self) -> float:
        """Since the run began."""
        return self._clock() - self._began

    def snapshot(self, state: State) -> Snapshot:
        """The run as it is now."""
        now = self._clock()
        phase = _PHASES[state]
        return Snapshot(
            name=self._name,
            path=self._path,
            page=self._page,
            phase=Phase.VALIDATING if phase is Phase.FINISHING and self._is_validating else phase,
            running_s=now - self._began,
            attempt=self._attempt,
            restarts=self._restarts,
            resizes=self._resizes,
            start=self._start,
            nodes=self._nodes,
            metrics=_texts(self._metrics),
            reports=self._reports,
            reports_per_s=self._rate(now),
            progress=self._progress.progress(now),
            goodput=self._goodput.goodput() if phase.is_end else self._goodput.goodput_so_far(now),
            checkpoint=self._checkpoint.path if self._checkpoint is not None else "",
            checkpoint_age_s=now - self._checkpoint_moment,
            best_checkpoint=self._best.path if self._best is not None else "",
        )

    def _rate(self, now: float) -> float | None:
        self._counts.append((now, self._reports))
        while len(self._counts) > 2 and self._counts[1][0] < now - RATE_WINDOW_S:
            self._counts.popleft()
        since, before = self._counts[0]
        return (
            (self._reports - before) / (now - since)
            if now - since >= 1.0 and self._reports > before
            else None
        )

    # -- what is seen

    def _group_starts(self, instruction: events.StartGroup) -> None:
        self._attempt = instruction.attempt

    def _training_starts(self, instruction: events.LaunchTraining) -> None:
        self._counts.clear()
        self._progress.attempt_began(self._clock(), is_fresh=not self._start)

    def _reported(self, instruction: events.RecordReport) -> None:
        if instruction.rank != 0:
            return
        self._reports += 1
        self._metrics = instruction.report.metrics
        self._progress.reported(self._metrics, instruction.report.index, self._clock())

    def _restarts_again(self, instruction: events.NotifyRestart) -> None:
        self._restarts += 1

    def _resizes_again(self, instruction: events.NotifyResize) -> None:
        self._resizes += 1

    def _group_stops(self, instruction: events.StopGroup) -> None:
        self._nodes = ()
        self._counts.clear()
        self._progress.attempt_ended()

    def _validations_drain(self, instruction: events.DrainValidations) -> None:
        self._is_validating = True


def _share(workers: Sequence[Worker]) -> NodeShare:
    """Of the workers of one node."""
    gpu_ids = tuple(gpu for worker in workers for gpu in worker.gpu_ids)
    return NodeShare(hostname=workers[0].hostname, workers=len(workers), gpu_ids=gpu_ids)


def _texts(metrics: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    flat = metric_values.flatten(metrics)
    shown = [
        (name, value)
        for name, value in flat.items()
        if value is not None and not isinstance(value, (list, tuple, dict))
    ]
    return tuple((name, text_of(value)) for name, value in shown[:MAX_METRICS])
