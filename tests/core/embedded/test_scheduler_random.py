"""The scheduler under random events: the invariants hold after each, and no task is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import pytest

from syncline.core.embedded.instructions import (
    Assign,
    AssignActor,
    GroupReady,
    Instruction,
    StartWorker,
    StopWorker,
)
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.resources import Infeasible
from tests.core.embedded.scheduler_invariants import check_scheduler

TOTAL = {"CPU": 4, "GPU": 2, "disk": 3}
DEMANDS: list[dict[str, float]] = [
    {"CPU": 1},
    {"CPU": 0.5},
    {"CPU": 2},
    {},
    {"CPU": 1, "GPU": 0.5},
    {"GPU": 2},
    {"CPU": 1, "disk": 1},
    {"CPU": 4},
]


class Driver:
    """A machine with imaginary processes that applies instructions at random times."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scheduler = Scheduler(TOTAL)
        self.ids = itertools.count()
        self.starting: list[str] = []
        self.workers: dict[int, list[int]] = {}
        self.blocked: set[int] = set()
        self.seats: dict[int, int] = {}
        self.open_tasks: dict[int, int] = {}
        self.open_actors: set[int] = set()
        self.groups: list[int] = []
        self.ready_groups: set[int] = set()
        self.shapes = [self.scheduler.shape(demand) for demand in DEMANDS]
        self.shapes.append(self.scheduler.shape({"CPU": 1}, environment="e"))
        for shape in self.shapes:
            self.scheduler.set_depth(shape, self.chance.choice([1, 1, 4]))
        self.group_shapes: dict[int, list[int]] = {}

    def apply(self, steps: Iterable[Instruction]) -> None:
        for step in steps:
            if isinstance(step, Assign):
                assert step.task_id in self.open_tasks
                self.workers[step.worker].append(step.task_id)
            elif isinstance(step, StartWorker):
                assert step.processes > 0
                self.starting += [step.environment] * step.processes
            elif isinstance(step, StopWorker):
                assert not self.workers.pop(step.worker)
                self.seats.pop(step.worker, None)
                self.blocked.discard(step.worker)
            elif isinstance(step, AssignActor):
                assert not self.workers[step.worker]
                self.seats[step.worker] = step.actor_id
            else:
                assert isinstance(step, GroupReady)
                self.ready_groups.add(step.group_id)

    def submit(self) -> None:
        group = (
            self.chance.choice(self.groups) if self.groups and self.chance.random() < 0.3 else None
        )
        shape = self.chance.choice(self.shapes if group is None else self.group_shapes[group])
        task = next(self.ids)
        self.open_tasks[task] = shape
        self.apply(self.scheduler.submit(task, shape))

    def ready(self) -> None:
        if self.starting:
            environment = self.starting.pop(self.chance.randrange(len(self.starting)))
            if self.chance.random() < 0.05:
                self.apply(self.scheduler.start_failed(environment))
                return
            worker = next(self.ids)
            self.workers[worker] = []
            self.apply(self.scheduler.worker_ready(worker, environment))

    def busy(self) -> int | None:
        return self.chance.choice(
            [worker for worker, tasks in self.workers.items() if tasks] or [None]
        )

    def finish(self) -> None:
        worker = self.busy()
        if worker is not None:
            self.blocked.discard(worker)
            if self.chance.random() < 0.1:
                self.apply(self.scheduler.retire(worker))
            task = self.workers[worker].pop(0)
            del self.open_tasks[task]
            self.apply(self.scheduler.finished(worker, task))

    def block(self) -> None:
        worker = self.chance.choice([*self.workers] or [None])
        if worker is None:
            return
        if worker in self.blocked:
            self.blocked.discard(worker)
            self.apply(self.scheduler.unblocked(worker))
        elif self.workers[worker] or worker in self.seats:
            self.blocked.add(worker)
            back = self.workers[worker][1:]
            del self.workers[worker][1:]
            self.apply(self.scheduler.blocked(worker, back))

    def give_back(self) -> None:
        worker = self.busy()
        if worker is not None:
            count = self.chance.randint(1, len(self.workers[worker]))
            back = self.workers[worker][count:]
            del self.workers[worker][count:]
            self.apply(self.scheduler.returned(worker, back))

    def kill(self, worker: int | None = None) -> None:
        chosen = self.chance.choice([*self.workers] or [None]) if worker is None else worker
        if chosen is not None:
            tasks = self.workers.pop(chosen)
            self.blocked.discard(chosen)
            loss = self.scheduler.worker_died(chosen)
            assert loss.tasks == tasks
            assert loss.actor_id == self.seats.pop(chosen, None)
            self.open_actors.discard(-1 if loss.actor_id is None else loss.actor_id)
            for task in tasks:
                del self.open_tasks[task]
            self.apply(loss.instructions)

    def cancel(self) -> None:
        if self.open_tasks:
            task = self.chance.choice([*self.open_tasks])
            taken = any(task in tasks for tasks in self.workers.values())
            assert self.scheduler.cancel(task) is not taken
            if not taken:
                del self.open_tasks[task]

    def create_actor(self) -> None:
        actor = next(self.ids)
        self.open_actors.add(actor)
        one, nothing = self.shapes[0], self.shapes[3]
        shape, keeps = self.chance.choice(
            [
                (one, nothing),
                (one, one),
                (self.shapes[4], None),
                (nothing, None),
                (self.shapes[-1], None),
            ]
        )
        if self.groups and self.chance.random() < 0.3:
            shape, keeps = (
                self.chance.choice(self.group_shapes[self.chance.choice(self.groups)]),
                None,
            )
        self.apply(self.scheduler.reserve_actor(actor, shape, keeps))

    def end_actor(self) -> None:
        if self.open_actors:
            actor = self.chance.choice(sorted(self.open_actors))
            self.open_actors.remove(actor)
            self.apply(self.scheduler.release_actor(actor))

    def create_group(self) -> None:
        group = next(self.ids)
        bundles = self.chance.choice(
            [
                [{"CPU": 1}, {"CPU": 2}],
                [{"CPU": 1, "GPU": 0.5}],
                [{"CPU": 1}] * 4,
                [{"CPU": 1, "GPU": 2}],
            ]
        )
        try:
            steps = self.scheduler.create_group(group, bundles, "PACK")
        except Infeasible:  # the machine is small now
            return
        self.groups.append(group)
        self.group_shapes[group] = [
            self.scheduler.shape(demand, group=(group, -1))
            for demand in ({"CPU": 1}, {"CPU": 0.5}, {})
        ]
        self.scheduler.set_depth(self.group_shapes[group][0], 3)
        self.apply(steps)

    def resize(self) -> None:
        self.apply(
            self.scheduler.resize(
                {"CPU": self.chance.randint(0, 6), "disk": self.chance.randint(0, 4)}
            )
        )

    def remove_group(self) -> None:
        if self.groups:
            group = self.groups.pop(self.chance.randrange(len(self.groups)))
            removal = self.scheduler.remove_group(group)
            for task in removal.queued:
                del self.open_tasks[task]
            self.apply(removal.instructions)
            check_scheduler(self.scheduler)
            for worker, tasks in removal.running:
                assert self.workers[worker] == tasks
                self.kill(worker)
            for actor in removal.actors:
                self.open_actors.discard(actor)
                self.apply(self.scheduler.release_actor(actor))


@pytest.mark.parametrize(("seed", "resizes"), [(seed, seed % 2) for seed in range(16)])
def test_invariants_hold_after_every_event_and_nothing_is_lost(seed: int, resizes: int) -> None:
    driver = Driver(seed)
    events = [
        (driver.submit, 30), (driver.ready, 20), (driver.finish, 30), (driver.block, 6),
        (driver.give_back, 4), (driver.kill, 2), (driver.cancel, 2), (driver.create_actor, 3),
        (driver.end_actor, 3), (driver.create_group, 1), (driver.remove_group, 1),
        (driver.resize, resizes),
    ]  # fmt: skip
    for event in driver.chance.choices(
        [event for event, _ in events], [weight for _, weight in events], k=1500
    ):
        event()
        check_scheduler(driver.scheduler)
    driver.apply(driver.scheduler.resize(TOTAL))
    _drain(driver)
    assert not driver.open_tasks
    statistics = driver.scheduler.statistics()
    assert (statistics.queued, statistics.running, statistics.actors, statistics.groups) == (
        0,
        0,
        0,
        0,
    )
    assert driver.scheduler.available() == TOTAL


def _drain(driver: Driver) -> None:
    """Submit no new work: end actors and groups, unblock workers, and finish all tasks."""
    while driver.groups:
        driver.remove_group()
    while driver.open_actors:
        driver.end_actor()
    for worker in sorted(driver.blocked):
        driver.apply(driver.scheduler.unblocked(worker))
    driver.blocked.clear()
    for _ in range(100_000):
        if not driver.open_tasks:
            return
        driver.ready()
        driver.finish()
        check_scheduler(driver.scheduler)
