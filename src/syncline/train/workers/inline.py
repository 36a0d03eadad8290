"""A worker group of one in this process, for the inline engine: breakpoints in the training
function reach the terminal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.train.backend import Worker
from syncline.train.session import current_session, set_session
from syncline.train.workers.group import ContextFactory, OnBatch, OnEnd, TrainingGroup
from syncline.train.workers.messages import ControllerMessage
from syncline.train.workers.ranks import assign_ranks
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.worker import TrainWorker

P = ParamSpec("P")
R = TypeVar("R")


class InlineWorkerGroup(TrainingGroup):
    """The one worker is an object of this process. It cannot be killed: its training function runs
    on to its end, unheard.
    """

    def __init__(self, *, num_workers: int) -> None:
        if num_workers != 1:
            raise ValueError(
                f"`num_workers={num_workers}` needs {num_workers} processes, but `syncline.init(local_mode=True)` has this one only: "
                "set `num_workers=1`, or leave `local_mode` out."
            )
        self._worker = TrainWorker()
        self._outer = current_session()  # of a trial that is a trainer
        self._workers: list[Worker] = []

    @property
    def workers(self) -> Sequence[Worker]:
        return self._workers

    def start(self) -> None:
        self._workers = assign_ranks([self._worker.facts()])

    def prepare(self, specs: Sequence[WorkerSpec]) -> None:
        self._worker.prepare(specs[0])

    def execute_single_async(
        self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> ObjectRef[R]:
        return api.put(fn(*args, **kwargs))

    def gather(self, refs: Sequence[ObjectRef[R]]) -> list[R]:
        return [api.get(ref) for ref in refs]

    def launch(
        self, function: Any, config: Any, context: ContextFactory, on_batch: OnBatch, on_end: OnEnd
    ) -> None:
        def listen() -> None:
            for batch in self._worker.messages():
                on_batch(0, batch)
            on_end(0, None)

        threading.Thread(target=listen, name="syncline-listen", daemon=True).start()
        self._worker.start(function, config, context)

    def send(self, rank: int, message: ControllerMessage) -> None:
        self._worker.deliver(message)

    def hush(self, ranks: Sequence[int]) -> None:
        self._worker.hush()

    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        return {rank: self._worker.stacks() for rank in ranks}

    def kill(self) -> None:
        self._worker.hush()
        set_session(self._outer)
