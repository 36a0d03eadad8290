"""`ProcessPool`: the processes of trials. Each trial gets a fresh one, unless the search reuses
them.

A process that is sure to be needed is started before it is: on this machine, one that holds nothing
itself waits for the next trial, so that what lies between two trials is not the start of a process.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy
from syncline.core.refs import ObjectRef
from syncline.core.remote import remote
from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.workers import messages
from syncline.tune.workers.messages import Command, Outcome, TrialSpec
from syncline.tune.workers.runner import TrialRunner

logger = logging.getLogger("syncline")

SPARE = 2
"""So many processes wait for trials to come."""
CONCURRENCY = 3
"""Calls that a process takes at once: the controller's, and those that look at the trial."""
CLEAN_UP_S = 10.0
"""How long a class trainable's `cleanup` may take."""

_EVERY_PROCESS: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": CONCURRENCY}

OnOutcome = Callable[[Outcome | None, BaseException | None], None]
"""Called with what a command came to, or the error of the engine, on any thread."""


@dataclass
class TrialProcess:
    """One process with one trainable."""

    actor: Any
    """Its handle."""
    factory: PlacementGroupFactory | None = None
    """What its trial holds; None for one that is not in use."""
    used: bool = False
    """Whether a trainable was made in it."""
    attempt: int = 0
    """Which start of its trial it serves."""


class ProcessPool:
    """Starts, keeps and ends processes. Used from one thread.

    Args:
        trainable: The trainable, shipped, or a reference to that.
        reuse: Whether a process serves several trials, one after the other.
        on_one_machine: Whether all trials run on the machine of the program.
    """

    def __init__(
        self, trainable: ObjectRef[Any] | Any, *, reuse: bool, on_one_machine: bool
    ) -> None:
        self._trainable = trainable
        self._reuse = reuse
        self._is_local_mode = ensure_engine().is_local_mode
        self._on_one_machine = on_one_machine
        self._actor_class = remote(TrialRunner)
        self._waiting: deque[TrialProcess] = deque()

    def take(self, factory: PlacementGroupFactory, place: PlacementGroup | None) -> TrialProcess:
        """A process for a trial that holds `place`."""
        process = self._from_waiting(factory)
        if process is None:
            process = TrialProcess(self._start(factory, place))
        process.factory = factory
        return process

    def prepare_for(self, factory: PlacementGroupFactory) -> None:
        """Trials that hold this are to come: start what they will run in, if they hold it by
        themselves.
        """
        if (
            self._on_one_machine
            and not self._is_local_mode
            and not self._reuse
            and self._holds_nothing(factory)
        ):
            while len(self._waiting) < SPARE:
                self._waiting.append(
                    TrialProcess(
                        self._actor_class.options(
                            num_cpus=0, max_restarts=0, max_concurrency=CONCURRENCY
                        ).remote()
                    )
                )

    def start(self, process: TrialProcess, spec: TrialSpec, on_outcome: OnOutcome) -> None:
        """Make the trainable, or have the one that is there become another trial's."""
        command: Command = messages.Reset(spec=spec) if process.used else messages.Start(spec=spec)
        process.used = True
        self._call(process, command, on_outcome, self._trainable)

    def run(self, process: TrialProcess, command: Command, on_outcome: OnOutcome) -> None:
        """Have it carry out a command."""
        self._call(process, command, on_outcome)

    def keep(self, process: TrialProcess) -> bool:
        """Let a process wait for another trial, if the search reuses them; it has been cleaned
        up.
        """
        if not self._reuse or process.factory is None or not self._holds_nothing(process.factory):
            return False
        self._waiting.append(process)
        return True

    def stop_reusing(self) -> None:
        """Give every trial a fresh process from now on: the trainable's `reset_config` has refused.
        From any thread.
        """
        if self._reuse:
            self._reuse = False
            logger.warning(
                "`reuse_actors=True` has no effect: `reset_config` of the trainable returned False, so trials get new processes."
            )

    def end(self, process: TrialProcess) -> None:
        """End a process at once."""
        if self._is_local_mode:
            process.actor.leave.remote()
        api.kill(process.actor)

    def close(self) -> None:
        """End those that wait."""
        while self._waiting:
            self.end(self._waiting.pop())

    def _call(
        self, process: TrialProcess, command: Command, on_outcome: OnOutcome, trainable: Any = None
    ) -> None:
        ref = (
            process.actor.run.remote(command, trainable)
            if trainable is not None
            else process.actor.run.remote(command)
        )
        ensure_engine().on_value(ref, on_outcome)

    def _from_waiting(self, factory: PlacementGroupFactory) -> TrialProcess | None:
        if not self._waiting or not self._holds_nothing(factory):
            return None
        return self._waiting.popleft()

    def _holds_nothing(self, factory: PlacementGroupFactory) -> bool:
        """Whether the process itself holds none of the trial's place: the place is one CPU (or
        some, where processes serve several trials), or is handed on to a trainer.
        """
        if isinstance(factory, Gang) or factory.head_bundle_is_empty:
            return True
        if (
            not self._on_one_machine
            or len(factory.bundles) != 1
            or set(factory.head_bundle) != {"CPU"}
        ):
            return False
        return self._reuse or factory.head_cpus <= 1

    def _start(self, factory: PlacementGroupFactory, place: PlacementGroup | None) -> Any:
        options = dict(_EVERY_PROCESS)
        if place is not None and not self._holds_nothing(factory):
            options |= _options(factory.head_bundle)
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=place,
                placement_group_bundle_index=0,
                placement_group_capture_child_tasks=True,
            )
        return self._actor_class.options(**options).remote()


def _options(bundle: Mapping[str, float]) -> dict[str, Any]:
    """What an actor holds that takes a whole bundle."""
    rest = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
    options: dict[str, Any] = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0)}
    if "memory" in bundle:
        options["memory"] = int(bundle["memory"])
    if rest:
        options["resources"] = rest
    return options
