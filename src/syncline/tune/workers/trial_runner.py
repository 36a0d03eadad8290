"""`TrialRunner`: the actor that hosts the trainable of one trial.

The trainable runs in its own thread, so that a trainer inside it can ask the controller for
resources during a command. Only one command runs at a time. Each call returns the outcome of its
command, or a question of the trainable.
"""

from __future__ import annotations

import contextvars
import importlib
import os
import queue
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import dropwhile
from pathlib import Path

from syncline.core import thread_limits
from syncline.core.error_frames import pack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.tracebacks import user_traceback
from syncline.runs.rank_log import capture_output, flush_output
from syncline.storage import filesystem as files
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext, checkpoint_dir_name
from syncline.train.workers.profiling import cpu_profile as cpu
from syncline.train.workers.reservation import ReservationHost, set_reservation_host
from syncline.train.workers.spec import SerializedValue, deserialized
from syncline.tune.result import Metrics
from syncline.tune.trainable.function_trainable import (
    FUNCTION_THREAD,
    RESET_LIMIT_S,
    FunctionTrainable,
)
from syncline.tune.trainable.session import Reported
from syncline.tune.trainable.trainable import Trainable, node_address
from syncline.tune.trainable.trainable_state import TrialInfo
from syncline.tune.workers import messages
from syncline.tune.workers.isolation import ProcessState, forget_classes
from syncline.tune.workers.messages import Command, Outcome
from syncline.tune.workers.output_label import OutputLabel, watch_output
from syncline.tune.workers.own_time import OwnTime

LEAVE_S = 2 * RESET_LIMIT_S
"""Seconds that local mode waits for a trial that was stopped."""
BATCH_STEP_S = 0.02
"""Seconds for which the results of a trial of a batch are collected."""
TRIAL_THREAD = "syncline-trial"
_PACKAGE = str(Path(__file__).parents[2])


class TrialRunner:
    """Hosts a trainable. Only the controller calls `run`, one call at a time; `stack` and
    `cpu_profile` may be called during a command.
    """

    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command | _Batch | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[messages.Resume] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._host: _Host | None = None

    def run(
        self, command: Command, trainable: type[Trainable] | SerializedValue | None = None
    ) -> Outcome:
        """Carry out a command and return its outcome. Start needs the `trainable`."""
        if self._host is None:
            assert trainable is not None, "the first command is Start"
            self._host = _Host(trainable)
            set_reservation_host(
                ReservationHost(
                    before=lambda: self._ask(messages.ReservationStarting()),
                    made=lambda group: self._ask(messages.ReservationMade(group)),
                    after=lambda: self._ask(messages.ReservationReady()),
                )
            )
            # In this context, so that actors of the trainable take the bundles of the trial.
            self._thread = threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._work, self._host),
                name=TRIAL_THREAD,
                daemon=True,
            )
            self._thread.start()
        if isinstance(command, messages.RunBatch):
            return self._run_batch(command)
        if isinstance(command, messages.Resume):
            self._answers.put(command)
        elif not isinstance(command, messages.Await):
            self._commands.put(command)
        return self._outcomes.get()

    def _run_batch(self, command: messages.RunBatch) -> messages.BatchRan:
        """Wait for the trials of a batch; no longer than `within_s`."""
        batch = _Batch(command)
        self._commands.put(batch)
        while (remaining_s := batch.remaining_s()) > 0:
            try:
                outcome = self._outcomes.get(timeout=remaining_s)
            except queue.Empty:  # the trial may have waited for a core
                continue
            if isinstance(outcome, messages.BatchRan):
                return outcome
            self._outcomes.put(outcome)  # for `Await`: its trainer reserves workers
            break
        if (ran := batch.leave()) is None:
            ended = self._outcomes.get()
            assert isinstance(ended, messages.BatchRan), ended
            return ended
        if ran.runs_on and self._host is not None:
            self._host.label.use()  # also for output that bypasses Python's streams
        return ran

    def stack(self) -> str:
        """Return the stack of the trainable's thread."""
        return stack()

    def cpu_profile(self, seconds: float, afterwards_s: float) -> bytes:
        """Return a flame graph of this process, an SVG."""
        return cpu_profile(seconds, afterwards_s)

    def leave(self) -> None:
        """Stop the trial in local mode, where no process ends with it."""
        if self._thread is not None:
            set_reservation_host(None)
            self._commands.put(None)
            # The next trial runs in the same process, whose session this one still resets.
            self._thread.join(LEAVE_S)

    def _work(self, host: _Host) -> None:
        while (command := self._commands.get()) is not None:
            if isinstance(command, _Batch):
                self._work_on(command, host)
                continue
            outcome = _outcome_of(partial(host.execute, command))
            flush_output()
            self._outcomes.put(outcome)
        host.leave()

    def _work_on(self, batch: _Batch, host: _Host) -> None:
        """Run the trials of a batch, until one goes on."""
        while (start := batch.next()) is not None:
            outcome = _outcome_of(partial(host.run_to_end, start))
            if isinstance(outcome, messages.Stepped) and not outcome.ended:
                flush_output()
                self._outcomes.put(outcome)
                return
            batch.unusable = host.clean_up()
            flush_output()
            if not batch.add(outcome):
                self._outcomes.put(outcome)
        if (ran := batch.end()) is not None:
            self._outcomes.put(ran)

    def _ask(self, question: messages.Question) -> None:
        """Return a question as the outcome of the current command and wait for Resume. Called on
        the thread that reserves.
        """
        self._outcomes.put(question)
        self._answers.get()


def _outcome_of(run: Callable[[], Outcome]) -> Outcome:
    try:
        return run()
    except BaseException as error:  # also SystemExit: the controller waits for an outcome
        return messages.Failed(error=pack_error(error), text=user_traceback(error).rstrip())


def _location() -> str:
    return f"{node_address()}:{os.getpid()}"


class _Batch:
    """The trials of a `RunBatch`: those that have begun, and whether further ones may begin.
    Thread-safe.
    """

    def __init__(self, command: messages.RunBatch) -> None:
        self._lock = threading.Lock()
        self._starts = command.starts
        self._within_s = command.within_s
        self._clock = OwnTime()
        self._begun = 0
        self._ended: list[messages.Stepped | messages.Failed] = []
        self._closed = False  # begin no further trial
        self._left = False  # the call has returned
        self.unusable = ""
        """Reason why the process must not run another trial."""

    def next(self) -> messages.Start | None:
        """Begin the next trial; return None if no further one may begin."""
        with self._lock:
            is_over = self.unusable or self._begun == len(self._starts)
            if self._closed or is_over or (self._begun and not self.remaining_s()):
                self._closed = True
                return None
            self._begun += 1
            return self._starts[self._begun - 1]

    def add(self, outcome: Outcome) -> bool:
        """Add the outcome of a trial that ended; return False if the call returned before."""
        assert isinstance(outcome, (messages.Stepped, messages.Failed)), outcome
        with self._lock:
            if not self._left:
                self._ended.append(outcome)
            return not self._left

    def remaining_s(self) -> float:
        """Return the seconds until no further trial begins; 0 if they are over."""
        return self._clock.remaining_s(self._within_s)

    def end(self) -> messages.BatchRan | None:
        """Return the outcome of the batch, no trial of which runs; None if the call returned
        before.
        """
        with self._lock:
            return None if self._left else self._ran(runs_on=False)

    def leave(self) -> messages.BatchRan | None:
        """Begin no further trial, and return the outcome of the call while the last one runs, or
        before the first one begins; None if the batch is about to end.
        """
        with self._lock:
            self._closed = True
            runs_on = self._begun > len(self._ended)
            self._left = runs_on or not self._begun
            return self._ran(runs_on=runs_on) if self._left else None

    def _ran(self, *, runs_on: bool) -> messages.BatchRan:
        return messages.BatchRan(
            location=_location(),
            ended=tuple(self._ended),
            seconds=self._clock.elapsed_s(),
            runs_on=runs_on,
            unusable=self.unusable,
        )


class _Host:
    """The trainable of a trial, with its directory and output files."""

    def __init__(self, trainable: type[Trainable] | SerializedValue) -> None:
        self._serialized = trainable
        self._trainable: Trainable | None = None
        self._info: TrialInfo | None = None
        self._deferred_error: BaseException | None = None
        self._stop_capture: list[Callable[[], None]] = []
        self._process_state: ProcessState | None = None
        self.label = OutputLabel()

    def run_to_end(self, start: messages.Start) -> Outcome:
        """Run a function for a short time; return its end, or the results so far."""
        self.execute(start)
        return self._step(messages.Step(checkpoint_index=0, batch_s=BATCH_STEP_S))

    def clean_up(self) -> str:
        """Clean up after a trial. Return the reason why the process must not run another one; ""
        if it may.
        """
        trainable = self._trainable
        if trainable is not None:
            trainable.stop()
        if self._process_state is None:
            return ""
        if isinstance(trainable, FunctionTrainable) and not trainable.wait_ended():
            return f"its function did not end within {RESET_LIMIT_S:g} s"
        self._stop_capturing()
        self._trainable = self._deferred_error = trainable = None
        return self._process_state.restore()

    def execute(self, command: Command) -> Outcome:
        if isinstance(command, messages.Step):
            return self._step(command)
        if isinstance(command, messages.Save):
            return messages.Saved(checkpoint=self._save(command.checkpoint_index))
        if isinstance(command, messages.Start):
            if command.isolated and self._process_state is None:
                self._process_state = ProcessState(lambda: self._load_modules(command.imports))
            info = self._enter(command)
            if self._trainable is None:
                if command.isolated:
                    forget_classes()
                kind = deserialized(self._serialized)
                self._trainable = kind(dict(command.config), info=info)
            elif not self._trainable.reset(dict(command.config), info=info):
                return messages.ResetRefused()
            return self._restored(command)
        assert isinstance(command, messages.Stop), command
        return messages.Stopped(unusable=self.clean_up())

    def _load_modules(self, imports: Sequence[str]) -> None:
        """Load the modules of the program that trials use."""
        deserialized(self._serialized)
        for name in imports:
            with suppress(Exception):  # raised again where a trial imports it
                importlib.import_module(name)

    def leave(self) -> None:
        """End a function that waits in `report`, and stop capturing output."""
        if isinstance(self._trainable, FunctionTrainable):
            self._trainable.cleanup()
            self._trainable.wait_ended()
        self._stop_capturing()

    @property
    def _current(self) -> Trainable:
        assert self._trainable is not None, "the first command is Start"
        return self._trainable

    @property
    def _storage(self) -> StorageContext:
        assert self._info is not None, "the first command is Start"
        assert self._info.storage is not None, "a trial of a search has storage"
        return self._info.storage

    def _enter(self, start: messages.Start) -> TrialInfo:
        """Prepare the process for a trial."""
        is_first, self._info = self._info is None, start.info
        if is_first and start.info.resources is not None:
            limit_threads(start.info.resources.head_cpus)
        directory = (
            self._storage.experiment_fs_path
            if self._storage.local
            else str(ensure_engine().session_directory / "trials" / start.info.trial_id)
        )
        needs_directory = (
            start.makes_directory or start.in_trial_directory or start.log_files is not None
        )
        if needs_directory and not os.path.isdir(directory):
            os.makedirs(directory, exist_ok=True)
        if start.in_trial_directory:
            os.chdir(directory)
        self._stop_capturing()  # the end of the previous trial's output has its own label
        self._label_output(start)
        self._capture_output(directory, start)
        return replace(start.info, trial_dir=directory)

    def _label_output(self, start: messages.Start) -> None:
        """Let the lines of this trial begin with its name, without asking the engine for each of
        many trials that write nothing.
        """
        self.label.name = start.info.trial_name
        if not start.in_batch or self.label.is_used:
            self.label.use()
        else:
            self._stop_capture.append(watch_output(self.label))

    def _capture_output(self, directory: str, start: messages.Start) -> None:
        """Write output to the files of this trial."""
        if start.log_path is not None:
            self._stop_capture.append(capture_output(start.log_path))
        if start.log_files is not None:
            output, errors = (os.path.join(directory, name) for name in start.log_files)
            if output == errors:
                self._stop_capture.append(capture_output(output, timed=False))
            else:
                self._stop_capture.append(capture_output(output, ["stdout"], timed=False))
                self._stop_capture.append(capture_output(errors, ["stderr"], timed=False))

    def _stop_capturing(self) -> None:
        while self._stop_capture:
            self._stop_capture.pop()()

    def _restored(self, start: messages.Start) -> messages.Started:
        """Restore the checkpoint of a new or reset trainable."""
        if start.checkpoint is not None:
            if isinstance(self._trainable, FunctionTrainable):
                self._trainable.session.latest = start.checkpoint
            else:
                with start.checkpoint.as_directory() as directory:
                    self._current.restore(directory)
            self._current.continue_from(start.progress)
        return messages.Started(location=_location())

    def _step(self, command: messages.Step) -> messages.Stepped:
        """Return the next result, and the following ones within the batch."""
        trainable, results = self._current, list[Metrics]()
        checkpoint: Checkpoint | None = None
        try:
            if self._deferred_error is not None:
                error, self._deferred_error = self._deferred_error, None
                raise error
            if isinstance(trainable, FunctionTrainable):
                checkpoint = self._train_function(trainable, command, results)
            else:
                trainable.train_into(results, command.batch_s, sys.maxsize)
        except BaseException as error:
            if not results:
                raise
            self._deferred_error = error  # raised by the next step: the results count
        *earlier, result = results
        return messages.Stepped(
            result=result,
            earlier=tuple(earlier),
            checkpoint=checkpoint,
            ended=isinstance(trainable, FunctionTrainable) and trainable.ended,
        )

    def _train_function(
        self, trainable: FunctionTrainable, command: messages.Step, results: list[Metrics]
    ) -> Checkpoint | None:
        """Append the results of the step; return the committed checkpoint of the last one."""
        *earlier, last = trainable.train_buffered(command.batch_s, max_buffer_length=sys.maxsize)
        results += earlier
        message = trainable.message
        checkpoint = message.checkpoint if isinstance(message, Reported) else None
        if isinstance(message, Reported) and checkpoint is not None:
            if not message.in_place:
                checkpoint = self._commit(checkpoint, command.checkpoint_index)
            # The function may delete its own files before it calls `get_checkpoint()`.
            trainable.session.latest = checkpoint
        results.append(last)
        return checkpoint

    def _save(self, checkpoint_index: int) -> Checkpoint | None:
        """Save a class's state, directly in the trial's directory if that is local."""
        if isinstance(self._trainable, FunctionTrainable):
            return None
        storage = self._storage
        parent = storage.experiment_fs_path if storage.local else None
        directory = tempfile.mkdtemp(prefix=files.TEMPORARY_PREFIX, dir=parent)
        try:
            self._current.save(directory)
            return self._commit(Checkpoint(directory), checkpoint_index, move=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _commit(self, source: Checkpoint, index: int, *, move: bool = False) -> Checkpoint:
        """Commit files as checkpoint `index`; it stays marked unfinished until the controller has
        registered it.
        """
        storage, name = self._storage, checkpoint_dir_name(index)
        staged = storage.stage(source, name, rank=0, token=f"{os.getpid()}-{index}", move=move)
        storage.sync(staged or name)
        return storage.commit(name, [staged])


def limit_threads(cpus: float) -> None:
    """Let libraries use one thread per CPU of the trial, unless OMP_NUM_THREADS is set. Otherwise
    each trial would use all cores.
    """
    thread_limits.limit(thread_limits.threads_for(cpus))


def stack() -> str:
    """Return the stack of the trainable as Python prints it, without frames of this library."""
    threads = {thread.name: thread for thread in threading.enumerate()}
    thread = threads.get(FUNCTION_THREAD) or threads.get(TRIAL_THREAD)
    frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
    if frame is None:
        return "(the trainable does not run)"
    frames = traceback.extract_stack(frame)
    own = list(
        dropwhile(
            lambda each: each.filename.startswith(_PACKAGE) or each.filename == threading.__file__,
            frames,
        )
    )
    return "".join(traceback.format_list(own or frames))


def cpu_profile(seconds: float, afterwards_s: float) -> bytes:
    """Return a flame graph of this process, an SVG.

    Args:
        seconds: Duration of the profile.
        afterwards_s: Seconds that the profiler may take to write its result.

    Raises:
        ProfileError: py-spy is missing, may not read this process, or took no sample.
    """
    with tempfile.TemporaryDirectory(prefix="syncline-profile-") as directory:
        target = Path(directory) / "cpu.svg"
        cpu.record(seconds, afterwards_s, target)
        return target.read_bytes()
