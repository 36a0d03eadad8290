"""`Narrator`: what a controller tells people of its run, in lines about what happens and in
snapshots for displays that draw.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline.runs import discovery
from syncline.train import metric_values
from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig
from syncline.train.console.display import INTERVAL_S, Display, Silence, display_for, is_quiet
from syncline.train.console.status import RunStatus
from syncline.train.console.values import counted, located
from syncline.train.controller import events
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.controller.events import Instruction
from syncline.train.controller.goodput import Goodput, GoodputMeter
from syncline.train.controller.outliers import ranks_text
from syncline.train.controller.transitions import State
from syncline.train.storage.context import StorageContext
from syncline.train.workers.spec import RunSpec, SerializedValue

_TURNS = (
    events.Reserve,
    events.StartGroup,
    events.LaunchTraining,
    events.StopGroup,
    events.DrainValidations,
)
"""Instructions that change what the run is doing, and may take long."""


class Narrator:
    """Used from the controller's thread.

    Args:
        spec: The run.
        storage: Where it lies.
        goodput: The controller's own.
        clock: Seconds, never backwards.
        display: Who shows what is told; if not given, what fits where this program runs.
        may_draw: False where the training function has this process, and its terminal, for itself.
    """

    def __init__(
        self,
        spec: RunSpec,
        storage: StorageContext,
        goodput: GoodputMeter,
        *,
        clock: Callable[[], float] = time.monotonic,
        display: Display | None = None,
        may_draw: bool = True,
    ) -> None:
        self._name = storage.experiment_dir_name
        self._path = located(
            storage.experiment_fs_path,
            local=storage.local,
            scheme=storage.storage_filesystem.type_name,
        )
        self._clock = clock
        if display is None:
            display = display_for(spec.run_config, may_draw=may_draw)
        self._display = Silence() if is_quiet(spec.run_config) else display
        self._status = RunStatus(
            name=self._name, path=self._path, config=_config(spec), goodput=goodput, clock=clock
        )
        self._has_scores = (
            spec.run_config.checkpoint_config or CheckpointConfig()
        ).checkpoint_score_attribute is not None
        self._next_s = clock()

    @property
    def draws(self) -> bool:
        """Whether `tick` is to be called every `INTERVAL_S`."""
        return self._display.takes_snapshots

    def see(self, instruction: Instruction, state: State) -> None:
        """The controller is about to do this."""
        self._status.see(instruction)
        if self._display.takes_snapshots and isinstance(instruction, _TURNS):
            self._display.show(self._status.snapshot(state))

    def tick(self, state: State) -> None:
        """Show how the run is now, if that was not shown lately; called often."""
        if self._display.takes_snapshots and self._clock() >= self._next_s:
            self._next_s = self._clock() + INTERVAL_S
            self._display.show(self._status.snapshot(state))

    def close(self, state: State) -> None:
        """The run is over, or given up."""
        if self._display.takes_snapshots:
            self._display.show(self._status.snapshot(state))
        self._display.close()

    # -- what happens

    def opened(self, attempt: int, workers: Sequence[Worker], start: str) -> None:
        """The workers of an attempt run. `start` says where they begin; "" for from the
        beginning.
        """
        page = _page_of(self._path)
        self._status.opened(workers, start, page)
        if attempt > 1:
            return
        opening = f"training {self._name} with {counted(len(workers), 'worker')}"
        self._outline(f"{opening}, {start}" if start else opening)
        if page is not None:
            self._outline(f"this run is shown at {page}")

    def committed(self, checkpoint: Checkpoint, manager: CheckpointManager) -> None:
        """A checkpoint is in the run directory."""
        if self._display.takes_snapshots:
            best = manager.best_checkpoints if self._has_scores else []
            self._status.committed(checkpoint, best[-1][0] if best else None)

    def restarting(self, instruction: events.NotifyRestart, start: str) -> None:
        """An attempt has failed, and another one begins."""
        allowed = "no limit" if instruction.limit < 0 else f"{instruction.limit} allowed"
        begins = start or "from the beginning, as there is no checkpoint yet"
        self._say(
            f"attempt {instruction.failed_attempt} failed ({instruction.count}, {allowed}); starting again {begins}\n{instruction.cause}"
        )

    def resizing(self, instruction: events.NotifyResize) -> None:
        """The run goes on with another number of workers."""
        self._say(
            f"there is room for {instruction.workers} workers instead of {instruction.world_size}: going on with as many"
        )

    def preempted(self, instruction: events.NotifyPreemption) -> None:
        """Workers will be taken away."""
        ranks = sorted(
            rank for ranks in instruction.info.preempted_node_to_ranks.values() for rank in ranks
        )
        self._say(
            f"{ranks_text(ranks)} will be taken away in {instruction.seconds_left:.0f} s; the ranks are told so, to save their work"
        )

    def finished(self, goodput: Goodput | None, metrics: Mapping[str, Any] | None) -> None:
        """Every rank has returned, and the record says so."""
        if goodput is not None:
            self._outline(str(goodput))
        numbers = {
            name: value
            for name, value in metric_values.flatten(metrics or {}).items()
            if isinstance(value, (int, float))
        }
        shown = ", ".join(f"{name}={value:.4g}" for name, value in numbers.items())
        self._outline(
            f"training finished in {self._status.running_s:.1f} s{f' with {shown}' if shown else ''}; {self._path}"
        )

    def _say(self, text: str) -> None:
        self._display.say(f"syncline: {text}")

    def _outline(self, text: str) -> None:
        self._display.outline(f"syncline: {text}")


def _config(spec: RunSpec) -> Mapping[str, Any]:
    """`train_loop_config`, as far as it can be read here."""
    config: object = spec.train_config
    if isinstance(config, SerializedValue):
        config = (spec.described or {}).get("train_config") or {}
    return config if isinstance(config, Mapping) else {}


def _page_of(path: str) -> str | None:
    try:
        return discovery.page_of(path)
    except OSError:  # of no importance to the run
        return None
