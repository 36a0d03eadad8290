"""`LiveSearch`: answers requests about a running search of the dashboard and the command line:
running trials, stacks, profiles, stop; `watched` also samples the trials and writes their record.

Requests come from programs of the same user on the same machine (`core.control`), on their own
threads, without the search's thread. The processes of trials answer, on any machine. Not covered:
memory and torch profiles, which only trainers have; a trainer inside a trial has its own run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeAlias

import psutil

from syncline.core import api, control
from syncline.core.lifecycle import ensure_engine
from syncline.core.refs import ObjectRef
from syncline.core.remote import ActorHandle
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.runs import Files, RunDirectory
from syncline.runs.run_directory import PROFILES_DIRECTORY
from syncline.runs.usage import Sampler
from syncline.train.controller.live_actions import SLACK_S, LiveError
from syncline.train.storage.context import StorageContext
from syncline.train.workers.profiling.profile_request import ProfileKind, ProfileRequest
from syncline.tune.controller.search_record import RunningTrial, RunningTrials, SearchRecord
from syncline.tune.workers import trial_runner

SAMPLE_EVERY_S = 5.0
"""Seconds between two samples of each trial's process. Shorter trials cost nothing."""
WRITE_EVERY_S = 1.0
"""Seconds between two writes of the buffered record."""
STACK_S = 5.0
"""Seconds to wait for the stacks of trials."""
_HOST_KEYS = ("host_cpu_percent", "host_memory_percent")

ActorOf: TypeAlias = Callable[[str], ActorHandle | None]
"""Returns the actor that hosts a trial; None if there is none."""
Arguments: TypeAlias = Mapping[str, Any]
"""Arguments of a request, from JSON."""


class UsageSampler(Protocol):
    """Samples the usage of one process."""

    def sample(self) -> Mapping[str, float]: ...


class TrialSampler:
    """Samples the processes of the trials on this machine.

    Args:
        record: Run directory for the samples.
        running: The trials to sample.
        sampler: Returns a sampler for a process id.
    """

    def __init__(
        self,
        record: RunDirectory,
        running: RunningTrials,
        sampler: Callable[[int], UsageSampler] = Sampler,
    ) -> None:
        self._record = record
        self._running = running
        self._sampler = sampler
        self._samplers: dict[tuple[str, int], UsageSampler] = {}

    def sample(self) -> None:
        """Take one sample of every trial.

        Raises:
            OSError: The samples cannot be written.
        """
        before, self._samplers = self._samplers, {}
        host: dict[str, float] = {}
        for trial in self._running.all():
            if not trial.is_local:
                continue
            key = (trial.trial_id, trial.attempt)
            try:
                sampler = before.get(key) or self._sampler(trial.pid)
                usage = sampler.sample()
            except psutil.Error:  # the process just ended
                continue
            # Every sampler measures the host since the last sample of any of them, so only the
            # first one covers the whole interval.
            host = host or {name: usage[name] for name in _HOST_KEYS if name in usage}
            self._samplers[key] = sampler
            self._record.sample(trial.trial_id, trial.attempt, trial.pid, {**usage, **host})


class RecordThread:
    """A thread that writes the record of a search, samples its trials, and uploads files that are
    only on this machine.
    """

    def __init__(
        self, record: SearchRecord, directory: RunDirectory, running: RunningTrials
    ) -> None:
        self._record = record
        self._directory = directory
        self._sampler = TrialSampler(directory, running)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syncline-record", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and write the rest."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._record.flush()
        self._record.write_state()

    def _run(self) -> None:
        self._record.write_state()
        next_sample = time.monotonic() + SAMPLE_EVERY_S
        while not self._stop.wait(WRITE_EVERY_S):
            self._record.flush()
            if time.monotonic() < next_sample:
                continue
            next_sample = time.monotonic() + SAMPLE_EVERY_S
            self._record.write_state()
            # The record logs its own failures; uploads are repeated.
            with suppress(OSError):
                self._sampler.sample()
                self._directory.flush()


@contextmanager
def watched(
    storage: StorageContext,
    directory: RunDirectory,
    record: SearchRecord,
    running: RunningTrials,
    actor_of: ActorOf,
    stop: Callable[[], None],
) -> Iterator[None]:
    """Answer requests about the search in `storage` and write its record while entered."""
    live = LiveSearch(storage.files, running, actor_of, stop)
    withdraw = control.serve(f"run:{storage.experiment_fs_path}", live.answer)
    thread = RecordThread(record, directory, running)
    thread.start()
    try:
        yield
    finally:
        withdraw()
        thread.close()


class LiveSearch:
    """Answers requests about one search. Thread-safe.

    Args:
        files: Experiment directory, for profiles.
        running: The running trials.
        actor_of: Returns the actor of a trial.
        stop: Interrupts the search without waiting for its end.
    """

    def __init__(
        self, files: Files, running: RunningTrials, actor_of: ActorOf, stop: Callable[[], None]
    ) -> None:
        self._stop = stop
        self._files = files
        self._running = running
        self._actor_of = actor_of
        self._actions: Mapping[str, Callable[[Arguments], object]] = {
            "workers": self._workers,
            "stacks": self._stacks,
            "profile": self._profile,
            "stop": self._stop_search,
        }

    def answer(self, action: str, arguments: Arguments) -> object:
        """Return the answer to a request, in JSON's types. Ranks are trial ids.

        - "workers": [{"rank", "name", "pid", "hostname"}]
        - "stacks" with {"ranks": [ids] or None}: {id: "  File …"}
        - "profile" with {"rank", "kind", "seconds"}: {"file": path in the run directory}, after
          the profile is taken
        - "stop": {}; the search ends after the answer as Ctrl-C ends it

        Raises:
            LiveError: The trial does not run or ended meanwhile; the profile failed.
            ValueError: Unknown action, or invalid arguments.
        """
        if action not in self._actions:
            raise ValueError(
                f"unknown action {action!r} of a search: use one of {', '.join(self._actions)}"
            )
        return self._actions[action](arguments)

    def _stop_search(self, arguments: Arguments) -> dict[str, object]:
        self._stop()
        return {}

    def _workers(self, arguments: Arguments) -> list[dict[str, object]]:
        return [
            {"rank": trial.trial_id, "name": trial.name, "pid": trial.pid, "hostname": trial.host}
            for trial in self._running.all()
        ]

    def _stacks(self, arguments: Arguments) -> dict[str, str]:
        wanted = arguments.get("ranks")
        trials = (
            [self._trial(each) for each in wanted] if wanted is not None else self._running.all()
        )
        if ensure_engine().is_local_mode:
            return {trial.trial_id: trial_runner.stack() for trial in trials}
        asked = {
            trial.trial_id: actor.stack.remote()
            for trial in trials
            if (actor := self._actor_of(trial.trial_id)) is not None
        }
        deadline = time.monotonic() + STACK_S
        return {trial_id: _stack_of(ref, deadline) for trial_id, ref in asked.items()}

    def _profile(self, arguments: Arguments) -> dict[str, str]:
        request = ProfileRequest.of(arguments)
        if request.kind is not ProfileKind.CPU:
            raise LiveError(
                f"a trial has no profile of kind {request.kind.value!r}: use 'cpu', the only kind"
            )
        trial = self._trial(arguments.get("rank"))
        try:
            profile = self._profiled(trial, request)
        except RayTaskError as error:
            raise LiveError(f"{error.cause or error}") from error
        except RayActorError as error:
            raise LiveError(
                f"the trial {trial.name} ended before its profile was taken: {_first_line(error)}"
            ) from error
        except GetTimeoutError:
            raise LiveError(
                f"the trial {trial.name} returned no profile within "
                f"{request.answer_within_s + SLACK_S:g} s: a call may hold its interpreter lock"
            ) from None
        moment = time.strftime("%Y%m%d-%H%M%S")
        name = f"{PROFILES_DIRECTORY}/{moment}-trial-{trial.trial_id}-{request.ending}"
        self._files.write(name, profile)
        return {"file": name}

    def _profiled(self, trial: RunningTrial, request: ProfileRequest) -> bytes:
        if ensure_engine().is_local_mode:
            return trial_runner.cpu_profile(request.seconds, request.afterwards_s)
        actor = self._actor_of(trial.trial_id)
        if actor is None:
            raise LiveError(f"the trial {trial.name} no longer runs, so it cannot be profiled")
        asked = actor.cpu_profile.remote(request.seconds, request.afterwards_s)
        return bytes(api.get(asked, timeout=request.answer_within_s + SLACK_S))

    def _trial(self, wanted: object) -> RunningTrial:
        trial = self._running.get(wanted) if isinstance(wanted, str) else None
        if trial is None:
            known = ", ".join(each.trial_id for each in self._running.all()[:10])
            raise LiveError(
                f"no trial {wanted!r} runs in the search; running trials: {known or 'none'}"
            )
        return trial


def _stack_of(ref: ObjectRef[str], deadline: float) -> str:
    try:
        return str(api.get(ref, timeout=max(0.0, deadline - time.monotonic())))
    except GetTimeoutError:
        return "(no answer: a call may hold the interpreter lock)"
    except (RayActorError, RayTaskError) as error:
        return f"(ended: {_first_line(error)})"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
