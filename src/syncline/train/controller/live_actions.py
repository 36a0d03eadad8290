"""Live actions: requests about a run in progress (list of workers, stacks, profiles, stop).

Requests arrive on their own threads, several at a time; the controller's thread only sets the
current group. An answer belongs to the group at the time of the request; if that group ends
meanwhile, the answer is an error. Requests come from programs of the same user on this machine
(`core.control`), and on a cluster through the run's actor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from syncline.core import api, control
from syncline.exceptions import GetTimeoutError, RayActorError, RayTaskError
from syncline.runs.outliers import NO_ANSWER, ranks_text
from syncline.train.backend import Worker
from syncline.train.controller.diagnosis import Diagnosis
from syncline.train.workers.group import TrainingGroup
from syncline.train.workers.profiling.profile_request import ProfileRequest
from syncline.train.workers.profiling.profiler import take_profile
from syncline.train.workers.reservation import is_hosted

STOP_REQUEST = "stopped from the dashboard or with `syncline runs stop`"
"""Message of the KeyboardInterrupt that a stop request raises in the program."""
SLACK_S = 10.0
"""Seconds to wait for a profile beyond its own limit."""


class LiveError(RuntimeError):
    """A request cannot be answered. The message has cause and remedy."""


class LiveActions:
    """Answers requests about one run, on any thread. The controller sets `group`.

    Args:
        stop: Aborts the run without waiting; the argument names the reason.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self.group: TrainingGroup | None = None
        """Workers that train now; None before, between and after attempts."""
        self.diagnosis: Diagnosis | None = None
        """Diagnosis of the run; set by the controller."""
        self._actions: Mapping[str, Callable[[TrainingGroup, Mapping[str, object]], object]] = {
            "workers": _workers,
            "stacks": _stacks,
            "profile": _profile,
        }

    @contextmanager
    def offered(self, path: str) -> Iterator[None]:
        """Serve requests of programs on this machine about the run directory `path`.

        Not in a trial of a search, whose process may be killed and must leave nothing behind: the
        search answers for it.
        """
        if is_hosted():
            yield
            return
        withdraw = control.serve(f"run:{path}", self.answer)
        try:
            yield
        finally:
            withdraw()

    def answer(self, action: str, arguments: Mapping[str, object]) -> object:
        """Return the answer in values that JSON can hold.

        - "workers": `[{"rank", "pid", "hostname", …}]`
        - "stacks", `{"ranks": [0, …] or None}`: `{"0": "  File …"}`
        - "diagnosis": see `RankHealth.to_json`
        - "profile", `{"rank", "kind", "seconds", "steps"}`: `{"file": path in the run directory}`,
          after the profile was taken
        - "stop": `{}`; the run ends after the answer as Ctrl-C ends it

        Raises:
            LiveError: There is no such rank; nothing trains just now; the worker has ended, or the
                profile could not be taken.
            ValueError: An unknown action, or arguments that cannot be meant.
        """
        if action == "stop":
            self._stop(STOP_REQUEST)
            return {}
        if action == "diagnosis":
            return {} if self.diagnosis is None else self.diagnosis.to_json()
        if action not in self._actions:
            raise ValueError(
                f"Unknown action {action!r} of a training run. Actions: "
                f"{', '.join((*self._actions, 'diagnosis', 'stop'))}."
            )
        group = self.group
        if group is None:
            raise LiveError(
                "No workers of the run are training now: it is starting, between attempts, or "
                "ending. Try again in a moment."
            )
        try:
            return self._actions[action](group, arguments)
        except (LiveError, ValueError):
            raise
        except Exception as error:
            if self.group is not group:
                raise LiveError(
                    f"The attempt ended before the answer ({_first_line(error)}). Try again in a "
                    "moment."
                ) from error
            raise


def _workers(group: TrainingGroup, arguments: Mapping[str, object]) -> list[dict[str, object]]:
    return [vars(worker) for worker in group.workers]


def _stacks(group: TrainingGroup, arguments: Mapping[str, object]) -> dict[str, str]:
    wanted = arguments.get("ranks")
    ranks = (
        [_rank(group, rank) for rank in wanted]
        if isinstance(wanted, Sequence)
        else [worker.rank for worker in group.workers]
    )
    found = group.stacks(ranks)
    return {str(rank): found.get(rank, NO_ANSWER) for rank in ranks}


def _profile(group: TrainingGroup, arguments: Mapping[str, object]) -> dict[str, str]:
    request = ProfileRequest.of(arguments)
    rank = _rank(group, arguments.get("rank"))
    try:
        asked = group.execute_single_async(rank, take_profile, request)
        return {"file": api.get(asked, timeout=request.answer_within_s + SLACK_S)}
    except RayTaskError as error:
        raise LiveError(f"{error.cause or error}") from error
    except RayActorError as error:
        raise LiveError(f"Rank {rank} ended while it was profiled: {_first_line(error)}") from error
    except GetTimeoutError:
        raise LiveError(
            f"Rank {rank} returned no profile within {request.answer_within_s + SLACK_S:g} s. A "
            "call that holds the interpreter may have stopped its Python; `syncline stack` shows "
            "it."
        ) from None


def _rank(group: TrainingGroup, wanted: object) -> int:
    """Return a rank of the group, given as a number or as digits."""
    ranks: Sequence[Worker] = group.workers
    if isinstance(wanted, str) and wanted.isascii() and wanted.isdigit():
        wanted = int(wanted)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted < len(ranks):
        raise LiveError(f"The run has no rank {wanted!r}, only {ranks_text(range(len(ranks)))}.")
    return wanted


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
