"""`TrainWorker`: actor of one rank. The training function runs in a thread alongside a control
channel that stays responsive.
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
from typing import Any, ParamSpec, TypeVar

import cloudpickle

from syncline import faults
from syncline.core import api, debugger, gpus
from syncline.core.context import get_runtime_context
from syncline.core.engine import call_result_hooks
from syncline.core.error_frames import pack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.termination import on_terminate
from syncline.core.tracebacks import user_traceback
from syncline.diagnosis.host_links import read_links
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.thread_states import ThreadMeter
from syncline.runs.rank_log import capture_output, flush_output
from syncline.runs.usage import Sampler
from syncline.train.session import set_session
from syncline.train.workers.hang_watch import HangWatch, thread_stack
from syncline.train.workers.messages import (
    UPLOAD_GRACE_S,
    ControllerMessage,
    Debugging,
    Failed,
    Finished,
    StreamItem,
    UsageReported,
)
from syncline.train.workers.profiling import profiler
from syncline.train.workers.ranks import WorkerInfo
from syncline.train.workers.send_buffer import SendBuffer
from syncline.train.workers.spec import SerializedValue, WorkerSpec, deserialized
from syncline.train.workers.worker_session import WorkerSession

P = ParamSpec("P")
R = TypeVar("R")
TrainFunction = Callable[..., object] | SerializedValue
TrainConfig = Mapping[str, object] | SerializedValue | None

logger = logging.getLogger("syncline")

CONCURRENCY = 8
"""Concurrent calls: the message stream, a function of the backend, and the control channel."""


class TrainWorker:
    """One worker of a group. Only the group calls its methods, several at a time.

    Args:
        modules: Modules to import now, in all workers in parallel. An import error is raised later
            by the function that needs the module.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        for module in modules:
            with suppress(Exception):
                importlib.import_module(module)
        self._send_buffer = SendBuffer()
        self._session: WorkerSession | None = None
        self._thread: threading.Thread | None = None
        self._sampler: Sampler | None = None
        self._sampling = threading.Lock()
        self._meter = ThreadMeter()

    def info(self) -> WorkerInfo:
        """Return location and GPUs of this worker; the controller fills in `node_ip`."""
        context = get_runtime_context()
        return WorkerInfo(
            node_id=context.get_node_id(),
            node_ip="",
            hostname=socket.gethostname(),
            pid=os.getpid(),
            gpu_ids=[str(gpu_id) for gpu_id in api.get_gpu_ids()],
        )

    def prepare(self, spec: WorkerSpec) -> None:
        """Create the session of this rank."""
        if spec.output_label:
            ensure_engine().label_output(spec.output_label)
        if spec.log_path is not None:
            capture_output(spec.log_path)
        if spec.visible_gpus is not None:
            gpus.show_only(spec.visible_gpus)
        if spec.data_context is not None:
            type(spec.data_context)._set_current(spec.data_context)
        self._session = WorkerSession(spec, self._send_buffer, self._fail)
        set_session(self._session)
        on_terminate(self._session.terminating)
        debugger.listeners.append(lambda active: self._send_buffer.put(Debugging(active=active)))

    def execute(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function of the backend."""
        return fn(*args, **kwargs)

    def start(
        self,
        function: TrainFunction,
        config: TrainConfig,
        context: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Start the training function in its thread; `config` is None for one without parameter."""
        session = self._session
        assert session is not None, "prepare comes before start"
        self._thread = threading.Thread(
            target=self._train,
            args=(session, function, config, context),
            name="syncline-train",
            daemon=True,
        )
        session.begin()
        self._thread.start()
        watch = HangWatch(
            hang_limit_s=session.hang_limit_s,
            median_step_s=lambda: session.median_step_s,
            on_stall=self._send_buffer.put,
            on_interval=lambda: self._report_usage(session),
            on_window=lambda number: self._observe(session, number),
            has_gpu=bool(session.gpu_ids),
        )
        self._meter = watch.meter
        session.communication_meters.append(lambda: watch.meter.communication_s)
        watch.follow(self._thread)

    def messages(self) -> Iterator[tuple[StreamItem, ...]]:
        """Yield batches of messages until the training function has ended."""
        yield from self._send_buffer.batches()

    def deliver(self, message: ControllerMessage) -> None:
        """Receive a message of the controller."""
        assert self._session is not None, "prepare comes before deliver"
        self._session.deliver(message)

    def drain(self) -> None:
        """End the message stream after the buffered messages and a last observation."""
        if self._session is not None:
            self._observe(self._session, None)
        self._send_buffer.close()

    def stacks(self) -> str:
        """Return the current stack of the training function."""
        return thread_stack(self._thread)

    def _train(
        self,
        session: WorkerSession,
        function: TrainFunction,
        config: TrainConfig,
        context: Callable[[], AbstractContextManager[object]],
    ) -> None:
        try:
            faults.reach("train.start")
            train, settings = deserialized(function), deserialized(config)
            profiler.prepare()
            with context():
                value = train() if settings is None else train(dict(settings))
            flush_output()
            session.finish_uploads()
            session.close_shares()
            returned = _pickled_return_value(value) if session.world_rank == 0 else None
            self._report_usage(session)
        except BaseException as error:  # SystemExit too, since the other ranks wait for this one
            flush_output()
            session.finish_uploads(UPLOAD_GRACE_S)  # checkpoints reported before count
            self._fail(error)
        else:
            self._end(Finished(return_value=returned))
        finally:
            self._send_buffer.close()  # an error above must not leave the controller waiting

    def _fail(self, error: BaseException) -> None:
        text = user_traceback(error).rstrip()
        if self._session is not None:
            self._report_usage(self._session)
            self._observe(self._session, None)
        packed = pack_error(error, traceback_text=text)
        self._end(Failed(exception=packed, traceback=text))

    def _end(self, message: Finished | Failed) -> None:
        call_result_hooks()  # the controller may kill this process once it knows the end
        self._send_buffer.close(message)

    def _observe(self, session: WorkerSession, window: int | None) -> None:
        """Send an observation; `window` is None at the end of the training function."""
        try:
            message = RankObserved(
                window=-1 if window is None else window,
                times=self._meter.times(),
                line=self._meter.take_line(),
                calls=session.call_log.read(window),
                links=read_links(),
            )
        except Exception as error:  # only for the diagnosis, so no reason to end a training
            logger.debug("The collective calls of this process are unknown: %r", error)
            return
        self._send_buffer.put_batched(message)

    def _report_usage(self, session: WorkerSession) -> None:
        usage: Mapping[str, object] = {}
        with self._sampling:
            try:
                if self._sampler is None:
                    self._sampler = Sampler(gpu_ids=session.gpu_ids)
                usage = self._sampler.sample()
            except Exception as error:  # only displayed, so no reason to end a training
                logger.debug("The resource usage of this process is unknown: %r", error)
        self._send_buffer.put_batched(UsageReported(times=session.step_times(), usage=usage))


def _detached(value: Any) -> Any:
    """Return the value with tensors on the CPU and without the graph that computed them, also those
    in dictionaries, lists and tuples.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return value
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if type(value) is dict:
        return {key: _detached(each) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_detached, value))
    return value


def _pickled_return_value(value: object) -> bytes:
    try:
        return bytes(cloudpickle.dumps(_detached(value)))
    except Exception as error:
        raise TypeError(
            f"The training function returned a {type(value).__name__} that cannot be pickled "
            f"({error}), so it cannot become `Result.return_value`. Return plain values, and save "
            "the rest in a checkpoint."
        ) from error
