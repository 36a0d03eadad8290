"""`RunStatus`: collects the state of a run from the controller's instructions and creates
snapshots. No I/O; the clock is injected.

Not thread-safe: only the controller's thread uses it, so reports need no lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from syncline.runs.run_progress import ProgressMeter
from syncline.train import metric_values
from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.console.formatting import text_of
from syncline.train.console.snapshot import NodeShare, Phase, Snapshot
from syncline.train.controller import events
from syncline.train.controller.events import Instruction
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.transitions import State
from syncline.train.metric_values import Metrics

MAX_METRICS = 100
"""Maximal number of metrics in a snapshot."""
RATE_WINDOW_S = 10.0
"""Seconds over which the rate of reports is measured."""

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
    """State of one run for the user.

    Args:
        name: Name of the run.
        path: Run directory, as text for users.
        config: `train_loop_config`, which may have the ends of counters among the metrics.
        goodput: Meter of the controller.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        *,
        name: str,
        path: str,
        config: Mapping[str, object],
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
        self._metrics: Metrics = {}
        self._reports = 0
        # (time, number of reports) at the snapshots of the last seconds.
        self._counts: deque[tuple[float, int]] = deque()
        self._checkpoint: Checkpoint | None = None
        self._checkpoint_time = 0.0
        self._best: Checkpoint | None = None
        self._is_validating = False

    def instruction_started(self, instruction: Instruction) -> None:
        """Record an instruction that the controller executes."""
        match instruction:
            case events.StartGroup():
                self._attempt = instruction.attempt
            case events.LaunchTraining():
                self._counts.clear()
                self._progress.attempt_began(self._clock(), is_fresh=not self._start)
            case events.RecordReport(rank=0):
                self._reports += 1
                self._metrics = instruction.report.metrics
                self._progress.reported(self._metrics, instruction.report.index, self._clock())
            case events.NotifyRestart():
                self._restarts += 1
            case events.NotifyResize():
                self._resizes += 1
            case events.StopGroup():
                self._nodes = ()
                self._counts.clear()
                self._progress.attempt_ended()
            case events.DrainValidations():
                self._is_validating = True
            case _:
                pass

    def attempt_started(self, workers: Sequence[Worker], start: str, page: str | None) -> None:
        """Record the workers of an attempt.

        Args:
            workers: The workers.
            start: Checkpoint from which they start, as text; "" without one.
            page: Address of the run in a dashboard.
        """
        self._start = start
        self._page = page
        by_node: dict[str, list[Worker]] = {}
        for worker in workers:
            by_node.setdefault(worker.node_id, []).append(worker)
        self._nodes = tuple(map(_node_share, by_node.values()))

    def checkpoint_committed(self, latest: Checkpoint, best: Checkpoint | None) -> None:
        """Record a new checkpoint and, with scores, the best one so far."""
        self._checkpoint, self._checkpoint_time = latest, self._clock()
        self._best = best

    @property
    def running_s(self) -> float:
        """Seconds since the start of the run."""
        return self._clock() - self._began

    def snapshot(self, state: State) -> Snapshot:
        """Return the current state."""
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
            checkpoint_age_s=now - self._checkpoint_time,
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


def _node_share(workers: Sequence[Worker]) -> NodeShare:
    """Describe the workers of one node."""
    gpu_ids = tuple(gpu for worker in workers for gpu in worker.gpu_ids)
    return NodeShare(hostname=workers[0].hostname, workers=len(workers), gpu_ids=gpu_ids)


def _texts(metrics: Metrics) -> tuple[tuple[str, str], ...]:
    flat = metric_values.flatten(metrics)
    shown = [
        (name, value)
        for name, value in flat.items()
        if value is not None and not isinstance(value, (list, tuple, dict))
    ]
    return tuple((name, text_of(value)) for name, value in shown[:MAX_METRICS])
