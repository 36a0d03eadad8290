"""Where the tasks of each stage run, and what they work with there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.execute.jobs import Job, Listener, Post
from syncline.data.execute.messages import TaskId
from syncline.data.execute.pools import ActorLane, WorkerLane
from syncline.data.execute.processes import warm
from syncline.data.execute.program import Program
from syncline.data.execute.stages import Actors, Exchanged, Lane, Workers
from syncline.data.execute.store import Stored
from syncline.data.execute.threads import DaemonThreads, ThreadLane
from syncline.data.execute.turns import ChainWork, ExchangeWork, Work
from syncline.data.execute.worker import WorkKey


class Lanes:
    """The lanes of one execution. For the driver's thread, but for what is submitted.

    Kernels and native decoders run on threads of this process; on a cluster they run in workers,
    near their blocks. In local mode everything runs in the driver's thread, which is the program's.
    """

    def __init__(
        self, program: Program, number: int, post: Post, *, is_local: bool, is_cluster: bool
    ) -> None:
        self.number = number
        """Of the execution."""
        self._program = program
        self._post = post
        self._is_local = is_local
        self._is_cluster = is_cluster
        self._threads: DaemonThreads | None = None
        self._workers: list[WorkerLane] = []
        self._lanes: dict[tuple[int, str], ThreadLane | WorkerLane | ActorLane] = {}
        self._works: dict[WorkKey, Work] = {}
        self._references: dict[WorkKey, ObjectRef[Any]] = {}
        self._prepared: dict[int, Any] = {}

    def open(self, listener: Listener) -> None:
        """Begin: pools start their first actors. The lanes tell `listener` what becomes of
        tasks.
        """
        here = ThreadLane(self.submit, self._post, listener, beside_program=self._is_local)
        for number, stage in enumerate(self._program.stages):
            if isinstance(stage.grouping, Exchanged):
                lane = stage.grouping.lane
                self._lanes[number, "sample"] = self._lanes[number, "partition"] = (
                    here if self._runs_here(lane) else self._worker_lane(lane, listener)
                )
            if stage.chain is None:
                continue
            if self._runs_here(stage.lane):
                self._lanes[number, "task"] = here
            elif isinstance(stage.lane, Actors):
                self._lanes[number, "task"] = self._actor_lane(number, stage.lane, listener)
            else:
                self._lanes[number, "task"] = self._worker_lane(stage.lane, listener)

    @property
    def have_pools(self) -> bool:
        """Whether actors come and go with time."""
        return any(isinstance(lane, ActorLane) for lane in self._lanes.values())

    def submit(self, call: Callable[[], None]) -> None:
        """Have a call made outside of the driver's thread; in local mode there is no other."""
        if self._is_local:
            self._post(call)
            return
        if self._threads is None:
            self._threads = DaemonThreads(f"syncline-data-{self.number}-task")
        self._threads.submit(call)

    def start(self, job: Job, inputs: Sequence[Stored]) -> None:
        """Begin a task."""
        lane = self._of(job.launch.task)
        if isinstance(lane, ThreadLane):
            lane.start(job, self._work(job.key), [each.value for each in inputs])
        elif all(each.reference is not None for each in inputs):
            lane.start(job, self._reference(job.key), [each.in_store() for each in inputs])
        else:
            # Copying large blocks into the object store takes a while: not in the thread that
            # serves all tasks.
            self.submit(partial(self._put, lane, job, inputs))

    def resume(self, job: Job) -> None:
        """The next turn of a task."""
        self._of(job.launch.task).resume(job)

    def cancel(self, job: Job) -> None:
        """Let go of a task."""
        job.cancelled = True
        self._of(job.launch.task).cancel(job)

    def waits_for(self, job: Job) -> str | None:
        """What a task that no process runs yet is waiting for; None if it runs."""
        lane = self._of(job.launch.task)
        return None if isinstance(lane, ThreadLane) or job.place is not None else lane.waits_for()

    def keep_prepared(self, stage: int, prepared: Any) -> None:
        """What the "partition" tasks of a stage work with."""
        self._prepared[stage] = prepared

    def tick(self, now: float) -> None:
        """What depends on the time."""
        for lane in set(self._lanes.values()):
            lane.tick(now)

    def close(self) -> None:
        """No more tasks: everything that runs is ended."""
        lanes, self._lanes, self._workers = set(self._lanes.values()), {}, []
        try:
            for lane in lanes:
                lane.close()
        finally:
            if self._threads is not None:
                self._threads.close()
            self._works, self._references, self._prepared = {}, {}, {}

    def _put(self, lane: WorkerLane | ActorLane, job: Job, inputs: Sequence[Stored]) -> None:
        try:
            references = [each.in_store() for each in inputs]
        except Exception as error:
            self._post(partial(lane.lost, job, error))
            return
        self._post(partial(self._start_with, lane, job, references))

    def _start_with(
        self, lane: WorkerLane | ActorLane, job: Job, references: Sequence[ObjectRef[Any]]
    ) -> None:
        if not job.cancelled:
            lane.start(job, self._reference(job.key), references)

    def _of(self, task: TaskId) -> ThreadLane | WorkerLane | ActorLane:
        return self._lanes[task.stage, task.kind]

    def _runs_here(self, lane: Lane) -> bool:
        return self._is_local or not (self._is_cluster or isinstance(lane, Workers | Actors))

    def _worker_lane(self, lane: Lane, listener: Listener) -> WorkerLane:
        wanted = lane if isinstance(lane, Workers) else Workers()
        found = next((each for each in self._workers if each.serves(wanted)), None)
        if found is None:
            found = WorkerLane(self.number, self._post, listener, wanted, warm)
            self._workers.append(found)
        return found

    def _actor_lane(self, number: int, lane: Actors, listener: Listener) -> ActorLane:
        key = WorkKey(self.number, number, "task")
        return ActorLane(key, lane, self._reference(key), self._program, self._post, listener)

    def _work(self, key: WorkKey) -> Work:
        work = self._works.get(key)
        if work is None:
            work = self._works[key] = self._new_work(key)
        return work

    def _new_work(self, key: WorkKey) -> Work:
        program = self._program
        stage = program.stages[key.stage]
        if key.kind == "task":
            assert stage.chain is not None
            context = (
                stage.chain.context
            )  # below a cache, tasks draw as in the execution that fills it
            seed = program.seed if context._execution_seed is None else context._execution_seed
            epoch = program.epoch if context._execution_seed is None else context._execution_idx
            place = len(program.stages) - key.stage
            return ChainWork(
                name=stage.name, chain=stage.chain, seed=seed, epoch=epoch, place=place
            )
        grouping = stage.grouping
        assert isinstance(grouping, Exchanged)
        if key.kind == "sample":
            return ExchangeWork(name=stage.name, context=program.context, sample=grouping.sample)
        prepared = self._prepared.get(key.stage)
        return ExchangeWork(
            name=stage.name,
            context=program.context,
            partition=grouping.partition,
            prepared=prepared,
        )

    def _reference(self, key: WorkKey) -> ObjectRef[Any]:
        reference = self._references.get(key)
        if reference is None:
            work = self._work(key)
            try:
                reference = self._references[key] = api.put(work)
            except TypeError as error:  # something that a function uses cannot be pickled
                raise TypeError(f"{work.name} {str(error).removeprefix('value ')}") from None
        return reference
