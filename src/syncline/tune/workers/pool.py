"""`ProcessPool`: the processes of trials. Each trial gets a new one, unless the search reuses them.

On one machine, processes without resources of their own are started before trials need them, so
that no trial waits for a process start.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from syncline.core import api, worker_imports
from syncline.core.error_messages import death_of
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy
from syncline.core.refs import ObjectRef
from syncline.core.remote import ActorHandle, remote
from syncline.train.workers.spec import SerializedValue
from syncline.tune.execution.placement_groups import Gang, PlacementGroupFactory
from syncline.tune.workers import messages
from syncline.tune.workers.isolation import IMPORTED
from syncline.tune.workers.messages import Command, Outcome
from syncline.tune.workers.trial_runner import TrialRunner

logger = logging.getLogger("syncline")

SPARE = 2
"""Number of processes that wait for new trials."""
MODULES = ("syncline.tune.registry", "syncline.tune.context")
"""Modules that every trial needs: that of the pickled trainable, and that of `tune.report`. The
import takes longer than the start of a process.
"""
CONCURRENCY = 3
"""Concurrent calls of a process: the controller's, and requests for stacks and profiles."""
CLEAN_UP_S = 10.0
"""Seconds that `cleanup` of a class trainable may take."""

_LESS_MEMORY = (
    "Let the trial use less memory, run fewer trials at the same time "
    "(`TuneConfig(max_concurrent_trials=…)`), or give the machine or its container more memory."
)

SerializedTrainable: TypeAlias = "ObjectRef[SerializedValue]"
"""Reference to the serialized trainable class."""

OnOutcome: TypeAlias = Callable[[Outcome | None, BaseException | None], None]
"""Called with the outcome of a command, or the engine's error, on any thread."""

_Options: TypeAlias = dict[str, Any]
_BASE_OPTIONS: _Options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": CONCURRENCY}


@dataclass(eq=False)
class TrialProcess:
    """One process with one trainable."""

    actor: ActorHandle
    """Handle of the `TrialRunner`."""
    factory: PlacementGroupFactory | None = None
    """Resources of its trial; None without a trial."""
    attempt: int = 0
    """Number of the trial's start that it runs."""
    reservation: str = ""
    """Name of the reservation that it holds while it cleans up."""
    deadline: float = 0.0
    """Time until which it may clean up."""
    group: PlacementGroup | None = None
    """Placement group of its trial."""
    successor: TrialProcess | None = None
    """Who gets the actor once it has cleaned up."""
    waits: bool = False
    """True if the actor still cleans up for the trial before."""
    start: Callable[[], None] | None = None
    """Starts its trial once the actor has cleaned up."""
    unusable: str = ""
    """Reason why it must not run another trial."""


class ProcessPool:
    """Starts, keeps and ends processes. Not thread-safe.

    Args:
        trainable: The serialized trainable class.
        reuse: Run several trials in one process, one after the other.
        isolated: Restore the state of a reused process for each trial.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        trainable: SerializedTrainable,
        *,
        reuse: bool,
        isolated: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        engine = ensure_engine()
        worker_imports.expect(*MODULES)
        self._trainable = trainable
        self._reuse = reuse
        self._isolated = isolated
        self._imports: frozenset[str] = frozenset()
        self._warned = False
        self._clock = clock
        self._is_local_mode = engine.is_local_mode
        self._is_one_machine = (
            sum(node["Alive"] for node in api.nodes()) == 1 and not engine.may_grow
        )
        self._actor_class = remote(TrialRunner)
        self._waiting: deque[TrialProcess] = deque()
        self.cleaning_up: dict[TrialProcess, None] = {}
        """Processes that clean up and still hold their trials' resources, in order."""

    def take(self, factory: PlacementGroupFactory, group: PlacementGroup | None) -> TrialProcess:
        """Return a process for a trial with this placement group."""
        predecessor = self._predecessor() if self._needs_no_resources(factory) else None
        if self._waiting and self._needs_no_resources(factory):
            process = self._waiting.popleft()
        elif predecessor is not None:
            process = predecessor.successor = TrialProcess(predecessor.actor, waits=True)
        else:
            process = TrialProcess(self._start(factory, group))
        process.factory, process.group = factory, group
        return process

    def _predecessor(self) -> TrialProcess | None:
        """Return a process that will be free once it has cleaned up, which takes less time than the
        start of another one.
        """
        now = self._clock()
        return next(
            (
                process
                for process in self.cleaning_up
                if self._is_reusable(process)
                and process.successor is None
                and now < process.deadline
            ),
            None,
        )

    def _is_reusable(self, process: TrialProcess) -> bool:
        return (
            self._reuse
            and process.factory is not None
            and self._needs_no_resources(process.factory)
        )

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

    def start(self, process: TrialProcess, start: messages.Start, on_outcome: OnOutcome) -> None:
        """Start a trial in a process, or as soon as the process has cleaned up."""
        if self._isolated:
            start = replace(start, isolated=True, imports=self.imports)
        self._begin(process, start, on_outcome)

    def run_batch(
        self, process: TrialProcess, batch: messages.RunBatch, on_outcome: OnOutcome
    ) -> None:
        """Run a batch of trials in a process, or as soon as the process has cleaned up."""
        self._begin(process, batch, on_outcome)

    def _begin(
        self,
        process: TrialProcess,
        command: messages.Start | messages.RunBatch,
        on_outcome: OnOutcome,
    ) -> None:
        def run() -> None:
            self._run(process, on_outcome, command, self._trainable)

        if process.waits:
            process.start = run
        else:
            run()

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that trials imported, for processes that start."""
        return tuple(sorted(self._imports))

    def may_batch(self, factory: PlacementGroupFactory) -> bool:
        """Return True if trials with these resources may share a process of this machine."""
        return (
            self._isolated
            and self._is_one_machine
            and not self._is_local_mode
            and len(factory.bundles) == 1
            and set(factory.head_bundle) == {"CPU"}
        )

    def keep(self, process: TrialProcess) -> None:
        """Keep a process that ran a batch for other trials, or end it."""
        if process.unusable:
            self.end(process)
        else:
            self._waiting.append(process)

    def note(self, process: TrialProcess, outcome: Outcome | None) -> None:
        """Note the reason why a process must not run another trial, if the outcome has one."""
        unusable = getattr(outcome, "unusable", "")
        if not unusable:
            return
        process.unusable = unusable
        if unusable.startswith(IMPORTED):  # later processes import them before their first trial
            self._imports |= set(unusable[len(IMPORTED) :].split(", "))
        elif not self._warned:
            self._warned = True
            logger.warning(
                "A trial got a process of its own in spite of `isolation='worker'`, because of the "
                "trial before it: %s. The search continues; it runs as fast as with "
                "`isolation='process'` if each trial does so.",
                unusable,
            )

    def run(self, process: TrialProcess, command: Command, on_outcome: OnOutcome) -> None:
        """Carry out a command in a process."""
        self._run(process, on_outcome, command)

    def _run(self, process: TrialProcess, on_outcome: OnOutcome, *arguments: object) -> None:
        def receive(outcome: Outcome | None, error: BaseException | None) -> None:
            if error is not None:
                error = death_of("The process of the trial", error, less_memory=_LESS_MEMORY)
            on_outcome(outcome, error)

        ensure_engine().on_value(process.actor.run.remote(*arguments), receive)

    def clean_up(self, process: TrialProcess, on_done: Callable[[], None]) -> None:
        """Let a process clean up, and call `on_done`, on any thread, when it has. Then, or when the
        process is overdue, call `finish`.
        """
        process.deadline = self._clock() + CLEAN_UP_S
        self.cleaning_up[process] = None
        if process.waits:  # nothing of its trial has started
            self._give_up_waiting(process)
            on_done()
            return

        def done(outcome: Outcome | None, error: BaseException | None) -> None:
            self.note(process, outcome)
            on_done()

        self.run(process, messages.Stop(), done)

    def overdue(self) -> list[TrialProcess]:
        """Return the processes whose time to clean up is over."""
        now = self._clock()
        return [process for process in self.cleaning_up if now >= process.deadline]

    def finish(self, process: TrialProcess) -> bool:
        """Keep a process that cleaned up for another trial, or end it; return False if that has
        been done.
        """
        if process not in self.cleaning_up:
            return False
        del self.cleaning_up[process]
        in_time = self._clock() < process.deadline
        keep = in_time and self._is_reusable(process) and not process.unusable
        successor = process.successor
        if successor is not None:
            self._hand_over(process, successor, keep)
        elif keep:
            self._waiting.append(process)
        else:
            self.end(process)
        return True

    def _hand_over(self, process: TrialProcess, successor: TrialProcess, keep: bool) -> None:
        """Give the actor of a process that has cleaned up, or a new one, to its successor."""
        process.successor = None
        if not keep:
            self.end(process)
            assert successor.factory is not None, "a successor has a trial"
            successor.actor = self._start(successor.factory, successor.group)
        successor.waits = False
        if successor.start is not None:
            successor.start()
            successor.start = None

    def _give_up_waiting(self, process: TrialProcess) -> None:
        """Leave the actor to the process before, which still cleans up."""
        for other in self.cleaning_up:
            if other.successor is process:
                other.successor = None
        process.factory = None  # not kept for another trial

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
        if process.waits:
            self._give_up_waiting(process)
            return
        if self._is_local_mode:
            process.actor.leave.remote()
        api.kill(process.actor)

    def close(self) -> None:
        """Kill the processes that wait or clean up."""
        for process in (*self._waiting, *self.cleaning_up):
            self.end(process)
        self._waiting.clear()
        self.cleaning_up.clear()

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
