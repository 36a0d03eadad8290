"""`AsyncDriver`: executes an asynchronous plan with runners and learners."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syncline.rl.learners.group import LearnerGroup
from syncline.rl.plans.asynchronous import AsyncPlan
from syncline.rl.plans.messages import (
    Event,
    FragmentReady,
    Instruction,
    Learn,
    Publish,
    RunnerJoined,
    RunnerLost,
    Sample,
    UpdateDone,
)
from syncline.rl.runners import sample as samples
from syncline.rl.runners.group import EnvRunnerGroup
from syncline.rl.value_types import StateDict

Update = Callable[[Sequence[samples.Sample]], None]


@dataclass(frozen=True, kw_only=True)
class DriverTimes:
    """Seconds since the previous call of `take_times`."""

    learner_idle_s: float
    """Seconds during which the learners had no batch."""
    learner_busy_s: float


class AsyncDriver:
    """Not thread-safe.

    Args:
        plan: The plan to execute.
        runners: The runners that sample.
        learners: The source of weights.
        update: Trains on samples; blocks until it is done.
        on_sample: Called with every sample that arrives.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        plan: AsyncPlan,
        runners: EnvRunnerGroup,
        learners: LearnerGroup,
        update: Update,
        on_sample: Callable[[samples.Sample], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.plan = plan
        self._runners = runners
        self._learners = learners
        self._update = update
        self._on_sample = on_sample
        self._clock = clock
        self._instructions: deque[Instruction] = deque()
        self._fragments: dict[int, samples.Sample] = {}
        self._next_fragment = 0
        self._joined: set[int] = set()
        self._idle_s = self._busy_s = 0.0

    def run(self, updates: int, limit_s: float | None = None) -> None:
        """Run until the learners have finished `updates` more passes, or for about `limit_s`.

        Raises:
            RuntimeError: All runners have failed.
        """
        self._meet_runners()
        goal, until = self.plan.updates + updates, None
        if limit_s is not None:
            until = self._clock() + limit_s
        while self.plan.updates < goal:
            if self._instructions:
                self._carry_out(self._instructions.popleft())
            elif until is not None and self._clock() >= until:
                return
            else:
                self._wait(None if until is None else max(until - self._clock(), 0.0))

    def take_times(self) -> DriverTimes:
        """Return the use of the time since the previous call."""
        found = DriverTimes(learner_idle_s=self._idle_s, learner_busy_s=self._busy_s)
        self._idle_s = self._busy_s = 0.0
        return found

    # -- events

    def _tell(self, event: Event) -> None:
        self._instructions += self.plan.handle(event)

    def _meet_runners(self) -> None:
        present = set(self._runners.healthy_env_runner_ids()) or {0}
        for runner in sorted(self._joined - present):
            self._tell(RunnerLost(runner=runner))
        for runner in sorted(present - self._joined):
            self._tell(RunnerJoined(runner=runner))
        self._joined = present

    def _wait(self, limit_s: float | None) -> None:
        began = self._clock()
        arrived = self._runners.receive_fragments(limit_s)
        self._idle_s += self._clock() - began
        self._meet_runners()
        for runner, sample in arrived:
            self._arrived(runner, sample)

    def _poll(self) -> None:
        for runner, sample in self._runners.receive_fragments(0.0):
            self._arrived(runner, sample)

    def _arrived(self, runner: int, sample: samples.Sample) -> None:
        number, self._next_fragment = self._next_fragment, self._next_fragment + 1
        self._fragments[number] = sample
        self._on_sample(sample)
        version = min(
            (each.weights_version for each in sample.fragments.values()), default=self.plan.updates
        )
        self._tell(
            FragmentReady(runner=runner, fragment=number, steps=sample.env_steps, version=version)
        )

    # -- instructions

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Sample):
            self._request(instruction.runner)
        elif isinstance(instruction, Learn):
            self._learn(instruction)
        elif isinstance(instruction, Publish):
            self._runners.sync_weights(from_worker_or_learner_group=self._learners)

    def _request(self, runner: int) -> None:
        if runner:
            self._runners.request_fragment(runner)
        else:
            began = self._clock()
            sample = self._runners.sample_fragment()
            self._idle_s += self._clock() - began
            self._arrived(0, sample)

    def _learn(self, instruction: Learn) -> None:
        chosen = [self._fragments[number] for number in instruction.fragments]
        if instruction.is_last:
            for number in instruction.fragments:
                del self._fragments[number]
        began = self._clock()
        self._update(chosen)
        self._busy_s += self._clock() - began
        if 0 not in self._joined:
            self._poll()  # before the next batch is chosen, to send requests without delay
        self._tell(UpdateDone(batch=instruction.batch))

    # -- state

    def drain(self) -> None:
        """Wait for all requested samples; the next `run` sends new requests."""
        if self._joined and 0 not in self._joined:
            self._runners.foreach_env_runner(_nothing)  # returns after all requests
            self._poll()

    def get_state(self) -> StateDict:
        """Return the state of the plan and the samples that have arrived."""
        return {
            "plan": self.plan.get_state(),
            "fragments": dict(self._fragments),
            "next_fragment": self._next_fragment,
            "instructions": [each for each in self._instructions if not isinstance(each, Sample)],
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        self.plan.set_state(state["plan"])
        self._fragments = dict(state["fragments"])
        self._next_fragment = state["next_fragment"]
        self._instructions = deque(state["instructions"])
        self._joined = set()


def _nothing(runner: object) -> None:
    """Do nothing."""
