"""`ConsoleReporter`: presents a run to the user, as lines about events and as snapshots for
displays that draw; and the choice of the display.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from syncline.core.host import is_interactive, is_terminal
from syncline.optional import load
from syncline.runs import discovery
from syncline.runs.outliers import ranks_text
from syncline.train import metric_values
from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig
from syncline.train.console.display import INTERVAL_S, Display, LineDisplay, NullDisplay
from syncline.train.console.formatting import counted, located
from syncline.train.console.notebook_panel import NotebookPanel
from syncline.train.console.run_status import RunStatus
from syncline.train.controller import events
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.controller.events import Instruction
from syncline.train.controller.goodput import Goodput, GoodputMeter
from syncline.train.controller.transitions import State
from syncline.train.metric_values import Metrics
from syncline.train.run_config import RunConfig
from syncline.train.storage.context import StorageContext
from syncline.train.workers.reservation import is_hosted
from syncline.train.workers.spec import RunSpec, SerializedValue

_PHASE_CHANGES = (
    events.Reserve,
    events.StartGroup,
    events.LaunchTraining,
    events.StopGroup,
    events.DrainValidations,
)
"""Instructions that change the phase of the run and may take long."""


class ConsoleReporter:
    """Used from the controller's thread.

    Args:
        spec: Specification of the run.
        storage: Storage of the run.
        goodput: Meter of the controller.
        clock: Monotonic time in seconds.
        display: Display to use; by default one is chosen by `display_for`.
        may_draw: False if the training function runs in this process and uses its terminal.
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
        self._display = NullDisplay() if is_quiet(spec.run_config) else display
        self._status = RunStatus(
            name=self._name, path=self._path, config=_config(spec), goodput=goodput, clock=clock
        )
        self._has_scores = (
            spec.run_config.checkpoint_config or CheckpointConfig()
        ).checkpoint_score_attribute is not None
        self._next_s = clock()

    @property
    def draws(self) -> bool:
        """True if `tick` should be called every `INTERVAL_S`."""
        return self._display.takes_snapshots

    def instruction_started(self, instruction: Instruction, state: State) -> None:
        """Record an instruction that the controller is about to execute."""
        self._status.instruction_started(instruction)
        if self._display.takes_snapshots and isinstance(instruction, _PHASE_CHANGES):
            self._display.show(self._status.snapshot(state))

    def tick(self, state: State) -> None:
        """Show a snapshot if the last one is older than `INTERVAL_S`. May be called often."""
        if self._display.takes_snapshots and self._clock() >= self._next_s:
            self._next_s = self._clock() + INTERVAL_S
            self._display.show(self._status.snapshot(state))

    def close(self, state: State) -> None:
        """Show the final state."""
        if self._display.takes_snapshots:
            self._display.show(self._status.snapshot(state))
        self._display.close()

    # -- notifications

    def attempt_started(
        self, attempt: int, workers: Sequence[Worker], start: str, *, from_snapshot: bool = False
    ) -> None:
        """Record the start of an attempt.

        Args:
            attempt: Its number.
            workers: Its workers.
            start: Description of the checkpoint or memory snapshot that it starts from; "" without.
            from_snapshot: True if it starts from a memory snapshot.
        """
        page = _page_of(self._path)
        self._status.attempt_started(workers, start, page)
        if attempt > 1:
            if from_snapshot:
                self._print_event(f"attempt {attempt} starts {start}")
            return
        opening = f"training {self._name} with {counted(len(workers), 'worker')}"
        self._print_status(f"{opening}, {start}" if start else opening)
        if page is not None:
            self._print_status(f"this run is shown at {page}")

    def checkpoint_committed(self, checkpoint: Checkpoint, manager: CheckpointManager) -> None:
        """Record a new checkpoint in the run directory."""
        if self._display.takes_snapshots:
            best = manager.best_checkpoints if self._has_scores else []
            self._status.checkpoint_committed(checkpoint, best[-1][0] if best else None)

    def restarting(self, instruction: events.NotifyRestart, start: str) -> None:
        """Record a failed attempt that is followed by another."""
        limit = ", no limit" if instruction.limit < 0 else f" of {instruction.limit}"
        begins = start or "from the beginning, as there is no checkpoint yet"
        self._print_event(
            f"attempt {instruction.failed_attempt} failed (failure {instruction.count}{limit}); "
            f"starting again {begins}\n{instruction.cause}"
        )

    def resizing(self, instruction: events.NotifyResize) -> None:
        """Record a change of the number of workers."""
        self._print_event(
            f"continuing with {instruction.workers} workers instead of {instruction.world_size}, "
            "as the available resources have changed"
        )

    def preempted(self, instruction: events.NotifyPreemption) -> None:
        """Record the announced loss of workers."""
        ranks = sorted(
            rank for ranks in instruction.info.preempted_node_to_ranks.values() for rank in ranks
        )
        self._print_event(
            f"{ranks_text(ranks)} will be preempted in {instruction.seconds_left:.0f} s; workers "
            "are notified so that they can save a checkpoint"
        )

    def finished(self, goodput: Goodput | None, metrics: Metrics | None) -> None:
        """Record the successful end of the run."""
        if goodput is not None:
            self._print_status(str(goodput))
        numbers = {
            name: value
            for name, value in metric_values.flatten(metrics or {}).items()
            if isinstance(value, (int, float))
        }
        shown = ", ".join(f"{name}={value:.4g}" for name, value in numbers.items())
        self._print_status(
            f"training finished in {self._status.running_s:.1f} s"
            f"{f' with {shown}' if shown else ''}; {self._path}"
        )

    def _print_event(self, text: str) -> None:
        self._display.print_event(f"syncline: {text}")

    def _print_status(self, text: str) -> None:
        self._display.print_status(f"syncline: {text}")


def _config(spec: RunSpec) -> Mapping[str, object]:
    """Return `train_loop_config`; {} if it cannot be deserialized here."""
    config: object = spec.train_config
    if isinstance(config, SerializedValue):
        config = (spec.described or {}).get("train_config") or {}
    return config if isinstance(config, Mapping) else {}


def _page_of(path: str) -> str | None:
    try:
        return discovery.page_of(path)
    except OSError:  # not important for the run
        return None


def display_for(run_config: RunConfig | None = None, *, may_draw: bool = True) -> Display:
    """Return the display for this program: a panel in terminals and notebooks, otherwise lines.

    Args:
        run_config: With `verbose=0` or a log level above INFO, nothing is displayed.
        may_draw: False if the training function runs in this process and uses its terminal.
    """
    if is_hosted() or is_quiet(run_config):
        return NullDisplay()
    if may_draw and is_interactive(None):
        return NotebookPanel()
    if may_draw and is_terminal(sys.stderr):
        panel: Display | None = load(
            "syncline.train.console.terminal_panel",
            purpose="the display in terminals",
            install="rich",
            library="rich",
        ).TerminalPanel.if_drawable()
        if panel is not None:
            return panel
    return LineDisplay()


def is_quiet(run_config: RunConfig | None) -> bool:
    """Return True if a run shows only warnings and errors."""
    if run_config is None:
        return False
    level = run_config.logging_config.log_level if run_config.logging_config is not None else "INFO"
    return run_config.verbose == 0 or logging.getLevelName(level) > logging.INFO
