"""`ProcessPool`: the processes of trials. Each trial gets a new one, unless the search reuses them.

On one machine, processes without resources of their own are started before trials need them, so
that no trial waits for a process start.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from syncline.core import api
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy
from syncline.core.refs import ObjectRef
from syncline.core.remote import ActorHandle, remote
from syncline.train.workers.spec import SerializedValue
from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.workers import messages
from syncline.tune.workers.messages import Command, Outcome, TrialSpec
from syncline.tune.workers.trial_runner import TrialRunner

logger = logging.getLogger("syncline")

SPARE = 2
"""Number of processes that wait for new trials."""
CONCURRENCY = 3
"""Concurrent calls of a process: the controller's, and requests for stacks and profiles."""
CLEAN_UP_S = 10.0
"""Seconds that `cleanup` of a class trainable may take."""

SerializedTrainable: TypeAlias = "ObjectRef[SerializedValue]"
"""Reference to the serialized trainable class."""

OnOutcome: TypeAlias = Callable[[Outcome | None, BaseException | None], None]
"""Called with the outcome of a command, or the engine's error, on any thread."""

_Options: TypeAlias = dict[str, Any]
_BASE_OPTIONS: _Options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": CONCURRENCY}


@dataclass
class TrialProcess:
    """One process with one trainable."""

    actor: ActorHandle
    """Handle of the `TrialRunner`."""
    factory: PlacementGroupFactory | None = None
    """Resources of its trial; None without a trial."""
    used: bool = False
    """True if it has a trainable."""
    attempt: int = 0
    """Number of the trial's start that it runs."""


class ProcessPool:
    """Starts, keeps and ends processes. Not thread-safe.

    Args:
        trainable: The serialized trainable class.
        reuse: Run several trials in one process, one after the other.
        is_one_machine: True if all trials run on the machine of the program.
    """

    def __init__(
        self, trainable: SerializedTrainable, *, reuse: bool, is_one_machine: bool
    ) -> None:
        self._trainable = trainable
        self._reuse = reuse
        self._is_local_mode = ensure_engine().is_local_mode
        self._is_one_machine = is_one_machine
        self._actor_class = remote(TrialRunner)
        self._waiting: deque[TrialProcess] = deque()

    def take(self, factory: PlacementGroupFactory, group: PlacementGroup | None) -> TrialProcess:
        """Return a process for a trial with this placement group."""
        if self._waiting and self._needs_no_resources(factory):
            process = self._waiting.popleft()
        else:
            process = TrialProcess(self._start(factory, group))
        process.factory = factory
        return process

    def prepare_for(self, factory: PlacementGroupFactory) -> None:
        """Start processes for coming trials with these resources, if they need none themselves."""
        if (
            self._is_one_machine
            and not self._is_local_mode
            and not self._reuse
            and self._needs_no_resources(factory)
        ):
            while len(self._waiting) < SPARE:
                self._waiting.append(TrialProcess(self._start(factory, None)))

    def start(self, process: TrialProcess, spec: TrialSpec, on_outcome: OnOutcome) -> None:
        """Create the trainable, or reset the existing one for another trial."""
        command: Command = messages.Reset(spec=spec) if process.used else messages.Start(spec=spec)
        process.used = True
        ref = process.actor.run.remote(command, self._trainable)
        ensure_engine().on_value(ref, on_outcome)

    def run(self, process: TrialProcess, command: Command, on_outcome: OnOutcome) -> None:
        """Carry out a command in a process."""
        ensure_engine().on_value(process.actor.run.remote(command), on_outcome)

    def keep(self, process: TrialProcess) -> bool:
        """Keep a cleaned-up process for another trial; return False if it cannot be reused."""
        factory = process.factory
        if not self._reuse or factory is None or not self._needs_no_resources(factory):
            return False
        self._waiting.append(process)
        return True

    def stop_reusing(self) -> None:
        """Use a new process for every later trial. Thread-safe."""
        if self._reuse:
            self._reuse = False
            logger.warning(
                "`reuse_actors=True` has no effect: `reset_config` of the trainable returned "
                "False, so each trial gets a new process."
            )

    def end(self, process: TrialProcess) -> None:
        """Kill a process."""
        if self._is_local_mode:
            process.actor.leave.remote()
        api.kill(process.actor)

    def close(self) -> None:
        """Kill the waiting processes."""
        while self._waiting:
            self.end(self._waiting.pop())

    def _needs_no_resources(self, factory: PlacementGroupFactory) -> bool:
        """Return True if the process itself needs no part of the trial's placement group: the group
        is a single CPU (or several, if processes are reused), or is passed on to a trainer.
        """
        if isinstance(factory, Gang) or factory.head_bundle_is_empty:
            return True
        only_cpus = len(factory.bundles) == 1 and set(factory.head_bundle) == {"CPU"}
        return self._is_one_machine and only_cpus and (self._reuse or factory.head_cpus <= 1)

    def _start(self, factory: PlacementGroupFactory, group: PlacementGroup | None) -> ActorHandle:
        options = dict(_BASE_OPTIONS)
        if group is not None and not self._needs_no_resources(factory):
            options |= _options(factory.head_bundle)
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=group,
                placement_group_bundle_index=0,
                placement_group_capture_child_tasks=True,
            )
        return self._actor_class.options(**options).remote()


def _options(bundle: Mapping[str, float]) -> _Options:
    """Return options for an actor that takes a whole bundle."""
    rest = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
    options: _Options = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0)}
    if "memory" in bundle:
        options["memory"] = int(bundle["memory"])
    if rest:
        options["resources"] = rest
    return options
