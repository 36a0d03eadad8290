"""`TrialRunner`: the actor that hosts one trial's trainable.

The trainable runs in a thread of its own, so that a trainer inside it can ask the controller for
room while a command is at work. One command at a time: each call returns the outcome of its
command, or what the trainable needs first.
"""

from __future__ import annotations

import importlib
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from syncline import settings
from syncline.core.error_frames import pack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.tracebacks import user_traceback
from syncline.train import filesystem as files
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import checkpoint_dir_name
from syncline.train.workers.output import keep_output
from syncline.train.workers.placement import ReservationHost, set_reservation_host
from syncline.train.workers.shipped import Shipped, loaded
from syncline.tune.result import DONE, SHOULD_CHECKPOINT
from syncline.tune.trainable.facts import TrialFacts
from syncline.tune.trainable.function_trainable import RESET_LIMIT_S, FunctionTrainable
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.workers import looking, messages
from syncline.tune.workers.messages import Command, Outcome, TrialSpec

LEAVE_S = 2 * RESET_LIMIT_S
"""How long a search in the program's own process waits for a trial that has been ended."""


class TrialRunner:
    """Hosts a trainable. `run` is called by the controller only, one call at a time; others look in
    meanwhile.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """`modules` are imported now; a failure is told by the trainable that needs them."""
        for module in modules:
            with suppress(Exception):
                importlib.import_module(module)
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[messages.GoOn] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._host: _Host | None = None

    def run(self, command: Command, trainable: type[Trainable] | Shipped | None = None) -> Outcome:
        """Carry out a command; `trainable` comes with Start."""
        if self._host is None:
            assert trainable is not None, "Start comes first"
            self._host = _Host(trainable)
            set_reservation_host(
                ReservationHost(
                    before=lambda: self._ask(messages.WantsPlace()),
                    made=lambda place: self._ask(messages.AskedForPlace(place)),
                    after=lambda: self._ask(messages.HasPlace()),
                )
            )
            self._thread = threading.Thread(
                target=self._work, args=(self._host,), name=looking.TRIAL_THREAD, daemon=True
            )
            self._thread.start()
        if isinstance(command, messages.GoOn):
            self._answers.put(command)
        else:
            self._commands.put(command)
        return self._outcomes.get()

    def stack(self) -> str:
        """Where the trainable is. Called while a command is at work."""
        return looking.stack()

    def cpu_profile(self, seconds: float, afterwards_s: float) -> bytes:
        """A flame graph of this process, an SVG. Called while a command is at work."""
        return looking.cpu_profile(seconds, afterwards_s)

    def leave(self) -> None:
        """End what is at work here, where no process ends with it: in local mode."""
        if self._thread is not None:
            set_reservation_host(None)
            self._commands.put(None)
            self._thread.join(
                LEAVE_S
            )  # the next trial comes to the same process, and what leaves changes the process's session

    def _work(self, host: _Host) -> None:
        while (command := self._commands.get()) is not None:
            try:
                outcome = host.carry_out(command)
            except BaseException as error:  # SystemExit too: a trainable that leaves must not leave the controller waiting
                outcome = messages.Failed(
                    error=pack_error(error), text=user_traceback(error).rstrip()
                )
                sys.stdout.flush()
            self._outcomes.put(outcome)
        host.leave()

    def _ask(
        self, question: messages.WantsPlace | messages.AskedForPlace | messages.HasPlace
    ) -> None:
        """Called on the thread that reserves, while a command is at work."""
        self._outcomes.put(question)
        self._answers.get()


class _Host:
    """The trainable, and where it is."""

    def __init__(self, trainable: type[Trainable] | Shipped) -> None:
        self._shipped = trainable
        self._trainable: Trainable | None = None
        self._spec: TrialSpec | None = None
        self._raised: BaseException | None = None
        self._printed: list[Callable[[], None]] = []

    def carry_out(self, command: Command) -> Outcome:
        if isinstance(command, messages.Start):
            return self._start(command.spec)
        if isinstance(command, messages.Step):
            return self._step(command)
        if isinstance(command, messages.Save):
            return messages.Saved(checkpoint=self._save(command.checkpoint_index))
        if isinstance(command, messages.Reset):
            return self._reset(command.spec)
        assert isinstance(command, messages.Stop), "GoOn is no command for the trainable"
        if self._trainable is not None:
            self._trainable.stop()
        return messages.Stopped()

    def leave(self) -> None:
        """A function that waits in its report ends there; what is printed goes where it went
        before.
        """
        if isinstance(self._trainable, FunctionTrainable):
            self._trainable.cleanup()
            self._trainable.has_left()
        self._keep_printed("", None)

    def _start(self, spec: TrialSpec) -> Outcome:
        directory = self._move_in(spec)
        kind = loaded(self._shipped)
        self._trainable = kind(dict(spec.config), facts=_facts(spec, directory))
        self._restore(spec)
        return _started()

    def _reset(self, spec: TrialSpec) -> Outcome:
        assert self._trainable is not None, "Start comes before Reset"
        directory = self._move_in(spec)
        if not self._trainable.reset(dict(spec.config), facts=_facts(spec, directory)):
            return messages.NotReset()
        self._restore(spec)
        return _started()

    def _move_in(self, spec: TrialSpec) -> str:
        """Returns the trial's directory on this machine."""
        if self._spec is None:
            share_cores(spec.resources.head_cpus)
        self._spec = spec
        storage = spec.storage
        directory = (
            storage.experiment_fs_path
            if storage.local
            else str(ensure_engine().session_directory / "trials" / spec.trial_id)
        )
        os.makedirs(directory, exist_ok=True)
        if spec.in_trial_directory:
            os.chdir(directory)
        self._keep_printed(directory, spec.log_files)
        return directory

    def _keep_printed(self, directory: str, log_files: tuple[str, str] | None) -> None:
        """What is printed goes to files of this trial, and no more to those of the one before
        it.
        """
        while self._printed:
            self._printed.pop()()
        if log_files is None:
            return
        output, errors = (os.path.join(directory, name) for name in log_files)
        if output == errors:
            self._printed = [keep_output(output)]
        else:
            self._printed = [keep_output(output, ["stdout"]), keep_output(errors, ["stderr"])]

    def _restore(self, spec: TrialSpec) -> None:
        assert self._trainable is not None, "it was just made"
        if spec.checkpoint is None:
            return
        if isinstance(self._trainable, FunctionTrainable):
            self._trainable.starting_checkpoint = spec.checkpoint
        else:
            with spec.checkpoint.as_directory() as directory:
                self._trainable.restore(directory)
        self._trainable.continue_from(spec.progress)

    def _step(self, command: messages.Step) -> Outcome:
        """The next result, with those before it that came quickly."""
        until = time.monotonic() + command.collect_s
        earlier: list[dict[str, Any]] = []
        while True:
            try:
                stepped = self._next_result(command.checkpoint_index)
            except BaseException as error:
                if not earlier:
                    raise
                self._raised = (
                    error  # told when the next result is asked for: what came before counts
                )
                return messages.Stepped(result=earlier.pop(), earlier=tuple(earlier))
            wants_attention = (
                stepped.ended
                or stepped.checkpoint is not None
                or stepped.result.get(DONE)
                or stepped.result.get(SHOULD_CHECKPOINT)
            )
            if wants_attention or time.monotonic() >= until:
                return replace(stepped, earlier=tuple(earlier))
            earlier.append(stepped.result)

    def _next_result(self, checkpoint_index: int) -> messages.Stepped:
        assert self._trainable is not None, "Start comes before Step"
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error
        result = self._trainable.train()
        checkpoint = None
        if isinstance(self._trainable, FunctionTrainable):
            if self._trainable.ended:
                return messages.Stepped(result=result, ended=True)
            reported = self._trainable.reported_checkpoint
            if reported is not None:
                checkpoint = (
                    reported
                    if self._trainable.reported_in_place
                    else self._keep(reported, checkpoint_index)
                )
                self._trainable.starting_checkpoint = (
                    checkpoint  # the function's own files may be gone when it asks for them
                )
        return messages.Stepped(result=result, checkpoint=checkpoint)

    def _save(self, checkpoint_index: int) -> Checkpoint | None:
        """A class's state, written where it is to stay if that is on this machine."""
        assert self._spec is not None, "Start comes before Save"
        assert self._trainable is not None, "Start comes before Save"
        if isinstance(self._trainable, FunctionTrainable):
            return None
        storage = self._spec.storage
        parent = storage.experiment_fs_path if storage.local else None
        directory = tempfile.mkdtemp(prefix=files.TEMPORARY_PREFIX, dir=parent)
        try:
            self._trainable.save(directory)
            return self._keep(Checkpoint(directory), checkpoint_index, take=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _keep(self, source: Checkpoint, index: int, *, take: bool = False) -> Checkpoint:
        """Commit files as the trial's checkpoint of that number. It is marked as unfinished until
        the controller knows of it.
        """
        assert self._spec is not None, "Start comes first"
        storage, name = self._spec.storage, checkpoint_dir_name(index)
        staged = storage.stage(source, name, rank=0, token=f"{os.getpid()}-{index}", take=take)
        storage.force(staged or name)
        return storage.commit(name, [staged])


def share_cores(cpus: float) -> None:
    """Have libraries compute with as many threads as the trial has CPUs, or obey OMP_NUM_THREADS:
    else each trial would use all cores.
    """
    if settings.environment("OMP_NUM_THREADS"):
        return
    threads = max(1, int(cpus))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if "torch" in sys.modules:  # which has read the variable when it was imported
        sys.modules["torch"].set_num_threads(threads)


def _started() -> messages.Started:
    return messages.Started(location=f"{ensure_engine().node_address()}:{os.getpid()}")


def _facts(spec: TrialSpec, directory: str) -> TrialFacts:
    return TrialFacts(
        trial_id=spec.trial_id,
        trial_name=spec.trial_name,
        trial_dir=directory,
        experiment_name=spec.experiment_name,
        resources=spec.resources,
        storage=spec.storage,
    )
