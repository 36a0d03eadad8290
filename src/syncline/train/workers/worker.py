"""`TrainWorker`: the actor that runs one rank's training function, in a thread beside a control
channel that always answers.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import cloudpickle

from syncline import faults
from syncline.core import api
from syncline.core.context import get_runtime_context
from syncline.core.error_frames import pack_error
from syncline.core.termination import on_terminate
from syncline.core.tracebacks import user_traceback
from syncline.runs.usage import Sampler
from syncline.train.session import set_session
from syncline.train.workers import stacks
from syncline.train.workers.messages import ControllerMessage, Failed, Finished, Sent, Spent
from syncline.train.workers.observer import Observer
from syncline.train.workers.outbox import Outbox
from syncline.train.workers.output import keep_output
from syncline.train.workers.profiling import recorder
from syncline.train.workers.ranks import WorkerFacts
from syncline.train.workers.session import WorkerSession
from syncline.train.workers.shipped import Shipped, loaded
from syncline.train.workers.spec import WorkerSpec

logger = logging.getLogger("syncline")

CONCURRENCY = 8
"""Calls at a time: the stream of messages, a function of the backend, and those of the control
channel.
"""

UPLOADS_OF_FAILED_S = 10.0
"""How long a training function's error waits for the checkpoints that it has reported."""


class TrainWorker:
    """One worker of a group. Its methods are called by the group only, several at a time."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """`modules` are imported now, all workers at once; a failure is told by the function that
        needs them.
        """
        for module in modules:
            with suppress(Exception):
                importlib.import_module(module)
        self._outbox = Outbox()
        self._session: WorkerSession | None = None
        self._thread: threading.Thread | None = None
        self._sampler: Sampler | None = None
        self._sampling = threading.Lock()

    def facts(self) -> WorkerFacts:
        """Where this worker is and what it has; `node_ip` is for the controller to fill in."""
        context = get_runtime_context()
        return WorkerFacts(
            node_id=context.get_node_id(),
            node_ip="",
            hostname=socket.gethostname(),
            pid=os.getpid(),
            gpu_ids=tuple(str(gpu_id) for gpu_id in api.get_gpu_ids()),
        )

    def prepare(self, spec: WorkerSpec) -> None:
        """Take a place in the group: from here on, the session exists."""
        if spec.log_path is not None:
            keep_output(spec.log_path)
        if spec.visible_gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(spec.visible_gpus)
        self._session = WorkerSession(spec, self._outbox, self._fail)
        set_session(self._session)
        on_terminate(self._session.terminating)

    def execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function of the backend."""
        return fn(*args, **kwargs)

    def start(
        self,
        function: Callable[..., Any] | Shipped,
        config: Mapping[str, Any] | Shipped | None,
        context: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        """Start the training function in its thread; `config` is None for one without
        parameters.
        """
        assert self._session is not None, "prepare comes before start"
        self._thread = threading.Thread(
            target=self._train,
            args=(self._session, function, config, context),
            name="syncline-train",
            daemon=True,
        )
        self._session.begin()
        self._thread.start()
        session = self._session
        observer = Observer(
            hang_limit_s=session.hang_limit_s,
            say=self._outbox.put,
            tell=lambda: self._tell(session),
        )
        session.communication_meters.append(lambda: observer.communicated_s)
        observer.follow(self._thread)

    def messages(self) -> Iterator[tuple[Sent, ...]]:
        """What this worker says, in batches, until its training function has ended."""
        yield from self._outbox.batches()

    def deliver(self, message: ControllerMessage) -> None:
        """What the controller says."""
        assert self._session is not None, "prepare comes before deliver"
        self._session.deliver(message)

    def hush(self) -> None:
        """End the stream of messages after what has been said."""
        self._outbox.close()

    def stacks(self) -> str:
        """Where the training function is now, as Python prints a stack."""
        return stacks.of_thread(self._thread)

    def _train(
        self,
        session: WorkerSession,
        function: Callable[..., Any] | Shipped,
        config: Mapping[str, Any] | Shipped | None,
        context: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        try:
            faults.reach("train.start")
            train, settings = loaded(function), loaded(config)
            recorder.prepare()
            with context():
                value = train() if settings is None else train(dict(settings))
            session.finish_uploads()
            session.close_shares()
            returned = _pickled_return_value(value) if session.world_rank == 0 else None
            self._tell(session)
        except (
            BaseException
        ) as error:  # SystemExit too: a rank that leaves early leaves the others waiting
            session.finish_uploads(UPLOADS_OF_FAILED_S)  # what it has reported before counts
            self._fail(error)
        else:
            self._outbox.close(Finished(return_value=returned))

    def _fail(self, error: BaseException) -> None:
        text = user_traceback(error).rstrip()
        sys.stdout.flush()
        if self._session is not None:
            self._tell(self._session)
        self._outbox.close(Failed(exception=pack_error(error, traceback_text=text), traceback=text))

    def _tell(self, session: WorkerSession) -> None:
        """Where the time has gone, and what this process uses."""
        usage: Mapping[str, Any] = {}
        with self._sampling:
            try:
                if self._sampler is None:
                    self._sampler = Sampler(gpu_ids=session.gpu_ids)
                usage = self._sampler.sample()
            except Exception as error:  # it is only looked at: no reason to end a training
                logger.debug("what this process uses cannot be told: %r", error)
        self._outbox.gather(Spent(times=session.spent(), usage=usage))


def _pickled_return_value(value: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise TypeError(
            f"the training function returned a {type(value).__name__} that cannot be pickled ({error}), so it cannot become "
            "`Result.return_value`: return plain values, and save the rest in a checkpoint."
        ) from error
