"""`LiveSearch`: what a search answers while it runs, to the dashboard and the command line: which
trials run, where they stand, profiles.

Questions come from programs of the same user on the same machine (`core.control`), on threads of
their own; the search's thread knows nothing of them. Answers of trials come from their processes,
on whatever machine those are. Not covered: memory and torch profiles, which belong to trainers; a
trainer inside a trial has a run of its own, which answers for itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from syncline.core import api, control
from syncline.core.lifecycle import ensure_engine
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.runs import Files, RunDirectory
from syncline.runs.directory import PROFILES_DIRECTORY
from syncline.train.controller.live import SLACK_S, LiveError
from syncline.train.storage import StorageContext
from syncline.train.workers.profiling.request import ProfileKind, ProfileRequest
from syncline.tune.controller.record import SearchRecord
from syncline.tune.controller.running import RecordUpkeep, RunningTrial, RunningTrials, TrialSamples
from syncline.tune.workers import looking

STACK_S = 5.0
"""How long trials are waited for that are asked for their stacks."""

ActorOf = Callable[[str], Any]
"""Gives the actor that hosts a trial; None where it has none."""


@contextmanager
def watched(
    storage: StorageContext,
    directory: RunDirectory,
    record: SearchRecord,
    running: RunningTrials,
    actor_of: ActorOf,
) -> Iterator[None]:
    """While this is entered, the search in `storage` answers for itself, and its record is kept
    up.
    """
    withdraw = control.offer(
        f"run:{storage.experiment_fs_path}", LiveSearch(storage.files, running, actor_of).answer
    )
    samples = TrialSamples(directory, running)
    upkeep = RecordUpkeep(
        write=record.flush,
        write_state=record.write_state,
        look=samples.look,
        upload=directory.flush,
    )
    upkeep.start()
    try:
        yield
    finally:
        withdraw()
        upkeep.close()


class LiveSearch:
    """Answers about one search. Any thread may ask.

    Args:
        files: The search's directory, for profiles.
        running: Who runs.
        actor_of: Gives the actor of a trial.
    """

    def __init__(self, files: Files, running: RunningTrials, actor_of: ActorOf) -> None:
        self._files = files
        self._running = running
        self._actor_of = actor_of
        self._actions: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
            "workers": self._workers,
            "stacks": self._stacks,
            "profile": self._profile,
        }

    def answer(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """What JSON can hold. Ranks are ids of trials.

        "workers": [{"rank", "name", "pid", "hostname"}]; "stacks" {"ranks": [ids] or None}: {id: "  File …"}; "profile" {"rank", "kind",
        "seconds"}: {"file": its path in the run directory}, after the time that it takes.

        Raises:
            LiveError: The trial does not run, or has ended meanwhile; the profile could not be
            taken. ValueError: An unknown action, or arguments that cannot be meant.
        """
        if action not in self._actions:
            raise ValueError(
                f"a search does not know the action {action!r}: it knows {', '.join(self._actions)}"
            )
        return self._actions[action](arguments)

    def _workers(self, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [
            {"rank": trial.trial_id, "name": trial.name, "pid": trial.pid, "hostname": trial.host}
            for trial in self._running.all()
        ]

    def _stacks(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        wanted = arguments.get("ranks")
        trials = (
            [self._trial(each) for each in wanted] if wanted is not None else self._running.all()
        )
        if ensure_engine().is_local_mode:
            return {trial.trial_id: looking.stack() for trial in trials}
        asked = {
            trial.trial_id: actor.stack.remote()
            for trial in trials
            if (actor := self._actor_of(trial.trial_id)) is not None
        }
        deadline = time.monotonic() + STACK_S
        return {trial_id: _stack_of(ref, deadline) for trial_id, ref in asked.items()}

    def _profile(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        request = ProfileRequest.of(arguments)
        if request.kind is not ProfileKind.CPU:
            raise LiveError(
                f"of a trial there are only CPU profiles, none of the kind {str(request.kind)!r}: ask for 'cpu'"
            )
        trial = self._trial(arguments.get("rank"))
        try:
            profile = self._profiled(trial, request)
        except RayTaskError as error:
            raise LiveError(f"{error.cause or error}") from error
        except RayActorError as error:
            raise LiveError(
                f"the trial {trial.name} ended while it was profiled, so there is no profile: {_first_line(error)}"
            ) from error
        except GetTimeoutError:
            raise LiveError(
                f"the trial {trial.name} had no profile after {request.answer_within_s + SLACK_S:g} s: its Python may be stopped by a call "
                "that holds the interpreter"
            ) from None
        moment = time.strftime("%Y%m%d-%H%M%S")
        name = f"{PROFILES_DIRECTORY}/{moment}-trial-{trial.trial_id}-{request.ending}"
        self._files.write(name, profile)
        return {"file": name}

    def _profiled(self, trial: RunningTrial, request: ProfileRequest) -> bytes:
        if ensure_engine().is_local_mode:
            return looking.cpu_profile(request.seconds, request.afterwards_s)
        actor = self._actor_of(trial.trial_id)
        if actor is None:
            raise LiveError(
                f"the trial {trial.name} does not run any more, so it cannot be profiled"
            )
        asked = actor.cpu_profile.remote(request.seconds, request.afterwards_s)
        return bytes(api.get(asked, timeout=request.answer_within_s + SLACK_S))

    def _trial(self, wanted: object) -> RunningTrial:
        trial = self._running.get(wanted) if isinstance(wanted, str) else None
        if trial is None:
            known = ", ".join(each.trial_id for each in self._running.all()[:10])
            raise LiveError(
                f"no trial {wanted!r} runs in the search; those that run are {known or 'none'}"
            )
        return trial


def _stack_of(ref: Any, deadline: float) -> str:
    try:
        return str(api.get(ref, timeout=max(0.0, deadline - time.monotonic())))
    except GetTimeoutError:
        return (
            "(it does not answer: its Python may be stopped by a call that holds the interpreter)"
        )
    except (RayActorError, RayTaskError) as error:
        return f"(it has ended: {_first_line(error)})"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
